"""A small Hugging Face hub on loopback: what fetching and uploading models asks of it, and a record of that."""

import base64
import hashlib
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit


class Hub:
    """Repositories by name: commits, the last one `main`, each with its files; and tags."""

    def __init__(self):
        self.repositories, self.tags, self.large, self.asked = {}, {}, {}, []
        self.refuses_all = False

    def commit(self, name, files, removed=()):
        commits = self.repositories.setdefault(name, [])
        now = {path: content for path, content in (commits[-1][1] if commits else {}).items() if path not in removed}
        now |= files
        sha = hashlib.sha1(repr((len(commits), sorted(now.items()))).encode()).hexdigest()
        commits.append((sha, now))
        return sha

    def at(self, name, revision):
        """Commit and files of a revision; None where there is none."""
        commits = self.repositories[name]
        sha = self.tags.get((name, revision), commits[-1][0] if commits and revision == "main" else revision)
        return next((commit for commit in commits if commit[0] == sha), None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *values):
        """Say nothing."""

    def answer(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def nothing(self, code):
        self.answer({"error": code}, 404, X_Error_Code=code, X_Error_Message=code)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def serve(self):
        hub, (path, query) = self.server.hub, urlsplit(self.path)[2:4]
        hub.asked.append((self.command, path))
        if hub.refuses_all:
            self.answer({"error": "down"}, 403)
            return
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.resolve(found[1], unquote(found[2]), unquote(found[3]))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|preupload|commit)/([^/]+))?", path):
            self.of_models(found[1], found[2] or "revision", unquote(found[3] or "main"), parse_qs(query))
        elif path == "/api/repos/create":
            asked = json.loads(self.body())
            name = f"{asked['organization']}/{asked['name']}"
            there = name in hub.repositories
            hub.repositories.setdefault(name, [])
            self.answer({"url": f"{self.server.address}/{name}"}, 409 if there else 200)
        elif path == "/api/validate-yaml":
            self.body()
            self.answer({"errors": [], "warnings": []})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                one | {"actions": {"upload": {"href": f"{self.server.address}/lfs/{one['oid']}"}}}
                for one in json.loads(self.body())["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif path.startswith("/lfs/"):
            hub.large[path.removeprefix("/lfs/")] = self.body()
            self.answer({})
        else:
            self.nothing("NotFound")

    do_GET = do_HEAD = do_POST = do_PUT = serve

    def resolve(self, name, revision, path):
        hub = self.server.hub
        if name not in hub.repositories:
            self.nothing("RepoNotFound")
        elif (commit := hub.at(name, revision)) is None:
            self.nothing("RevisionNotFound")
        elif path not in commit[1]:
            self.answer({}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit[0])
        else:
            content = commit[1][path]
            self.answer(content, ETag=f'"{hashlib.sha256(content).hexdigest()}"', X_Repo_Commit=commit[0])

    def of_models(self, name, what, revision, query):
        hub = self.server.hub
        if name not in hub.repositories:
            self.nothing("RepoNotFound")
        elif what == "preupload":
            files = [file["path"] for file in json.loads(self.body())["files"]]
            mode = {True: "lfs", False: "regular"}
            self.answer(
                {
                    "files": [
                        {"path": path, "uploadMode": mode[path.endswith(".safetensors")], "shouldIgnore": False}
                        for path in files
                    ]
                }
            )
        elif what == "commit":
            self.take(name)
        elif (commit := hub.at(name, revision)) is None and hub.repositories[name]:
            self.nothing("RevisionNotFound")
        elif what == "tree":
            files = commit[1] if commit else {}
            told = {path: hashlib.sha1(content).hexdigest() for path, content in files.items()}
            self.answer([{"type": "file", "path": path, "size": len(files[path]), "oid": told[path]} for path in files])
        else:
            siblings = [{"rfilename": path} for path in (commit[1] if commit else {})]
            self.answer({"id": name, "modelId": name, "sha": commit[0] if commit else None, "siblings": siblings})

    def take(self, name):
        hub, files, removed = self.server.hub, {}, []
        for line in map(json.loads, self.body().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = hub.large[value["oid"]]
            elif line["key"] == "deletedFile":
                removed.append(value["path"])
        sha = hub.commit(name, files, removed)
        self.answer({"commitUrl": f"{self.server.address}/{name}/commit/{sha}", "commitOid": sha})


@contextmanager
def serving():
    """A hub, its `address` and what it has been asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub, server.address = Hub(), f"http://127.0.0.1:{server.server_address[1]}"
    server.hub.address = server.address
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        server.server_close()
