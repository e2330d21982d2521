"""The packages of a wheel. The entry points and their settings stay where the repository has them, at its root; in a
wheel they are `duplexmt.commands`."""

from setuptools import find_packages, setup

setup(
    script_name="setup.py",  # which is no module of `duplexmt.commands`
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
)
