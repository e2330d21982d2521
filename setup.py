"""The packages of a wheel. The entry points and their settings stay where the repository has them, at its root; in a
wheel they are `duplexmt.commands`."""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py


class WithoutThisFile(build_py):
    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """All modules of a package; this one is none of `duplexmt.commands`."""
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]


setup(
    packages=[*find_packages(include=["duplexmt*", "data_prep*"]), "duplexmt.commands"],
    package_dir={"duplexmt.commands": "."},
    package_data={
        "duplexmt": [
            "py.typed",
            "__init__.pyi",
            "data/*.xz",
            "drawing/fonts/*",
            "drawing/*.json",
            "report/web/*",
            "protocol/*.json",
            "serving/web/*",
        ],
        "duplexmt.commands": ["conf/**/*.yaml"],
        "data_prep": ["py.typed", "conf/**/*.yaml"],
    },
    cmdclass={"build_py": WithoutThisFile},
)
