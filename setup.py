"""What pyproject.toml cannot say: the ready recipes and suites lie beside the package and are shipped inside it."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["effkit", "effkit.*"], exclude=["*.__pycache__", "*.__pycache__.*"]),
        "effkit.recipes",
        "effkit.evals",
    ],
    package_dir={"effkit.recipes": "recipes", "effkit.evals": "evals"},
)
