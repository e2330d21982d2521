"""What comes with the repository and with no wheel: pairs in `data/`, a trained model in `models/`.

`repository:data` in a setting is that folder wherever a command is run from. A model folder records the setting as it
stands, so that its corpus is found in another clone, too.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "repository:"


def located(path: str, root: Path = ROOT) -> Path:
    """A path of a setting: one that begins with `repository:` is the repository's, any other is taken as it stands.

    Raises:
        FileNotFoundError: for a path of the repository, where the package was installed without it.
    """
    if not path.startswith(PREFIX):
        return Path(path)
    name = path.removeprefix(PREFIX)
    if not (root / "pyproject.toml").is_file():
        raise FileNotFoundError(
            f"{path}: this is in the folder {name} of duplexmt's repository, which comes with no installed package: "
            "run from a clone of the repository, or give a folder of your own (data.path=FOLDER, model_folder=FOLDER)"
        )
    return root / name
