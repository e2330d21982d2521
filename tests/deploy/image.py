"""The steps of a Dockerfile, done in plain folders: there need not be a container engine."""

import json
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from string import Template


@dataclass
class Stage:
    """The root that a stage makes, and what is set in it."""

    root: Path
    args: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"})
    folder: str = "/"
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)

    def command(self, words):
        """A command as it is run in the root, with a /proc of its own."""
        env = [f"{name}={value}" for name, value in (self.args | self.env).items()]
        inner = ["env", "-i", *env, "sh", "-c", 'cd "$0" && exec "$@"', self.folder, *words]
        mount = f'mount -t proc proc {self.root}/proc && exec chroot --userspec={self.user} {self.root} "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, "sh", *inner]


def instructions(text):
    """Pairs of an instruction and its argument."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in lines.splitlines() if line.strip()]


def is_left_out(path, rules):
    """Whether a path of the context is, by the rules of .dockerignore: the last one that fits it or a folder above."""
    parents = [Path(path), *Path(path).parents]
    left_out = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        deep = pattern.startswith("**/")
        depth = pattern.count("/") + 1
        if any(one.match(pattern[3:] if deep else pattern) and (deep or len(one.parts) == depth) for one in parents):
            left_out = not rule.startswith("!")
    return left_out


def context(repository, into):
    """What of a repository a build sees."""
    rules = (repository / ".dockerignore").read_text(encoding="utf-8").split()
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=repository, stdout=subprocess.PIPE,
                           text=True, check=True).stdout.splitlines()  # fmt: skip
    for name in files:
        if not is_left_out(name, rules):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, into / name)


def build(dockerfile, seen, base, into, *, around=None, **build_args):
    """Do the steps of a Dockerfile; its last stage.

    Args:
        dockerfile: its text.
        seen: the folder of the context.
        base: the root of every `FROM`.
        into: a folder for the stages' roots.
        around: environment of the steps which is not kept.
        build_args: values of the arguments.
    """
    stages = {}
    for what, argument in instructions(dockerfile):
        if what == "FROM":
            name = argument.partition(" AS ")[2] or "last"
            stage = stages[name] = Stage(into / name)
            subprocess.run(["cp", "-a", base, stage.root], check=True)
            continue
        filled = Template(argument).safe_substitute(stage.args | stage.env)
        if what == "ARG":
            name, _, default = argument.partition("=")
            stage.args[name] = build_args.get(name, default)
        elif what == "ENV":
            stage.env |= dict(pair.split("=", 1) for pair in filled.split())
        elif what == "WORKDIR":
            stage.folder = filled
            (stage.root / filled.strip("/")).mkdir(parents=True, exist_ok=True)
        elif what == "USER":
            stage.user = filled
        elif what == "COPY":
            *options, source, target = filled.split()
            here = stages[options[0].removeprefix("--from=")].root if options else seen
            place = stage.root / stage.folder.strip("/") / target
            place = stage.root / target.strip("/") if target.startswith("/") else place
            shutil.copytree(here / source.strip("/"), place, symlinks=True, dirs_exist_ok=True)
        elif what == "RUN":
            ran = Stage(stage.root, stage.args, stage.env | (around or {}), stage.folder, stage.user)
            subprocess.run(ran.command(["sh", "-c", argument]), check=True)
        elif what == "ENTRYPOINT":
            stage.entrypoint = json.loads(argument)
        elif what == "HEALTHCHECK":
            stage.healthcheck = json.loads(argument[argument.index("[") :])
        else:
            assert what == "EXPOSE", f"{what} is not known here"
    return stage
