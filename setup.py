"""What pyproject.toml cannot say: the ready recipes and suites lie beside the package and are shipped inside it."""

from setuptools import Extension, find_namespace_packages, setup

NATIVE = "effkit/kernels/native"

setup(
    packages=[
        *find_namespace_packages(include=["effkit", "effkit.*"], exclude=["*.__pycache__", "*.__pycache__.*"]),
        "effkit.recipes",
        "effkit.evals",
    ],
    package_dir={"effkit.recipes": "recipes", "effkit.evals": "evals"},
    ext_modules=[
        # No Python module but a plain library for ctypes. Without a C++ compiler it is left out; see docs/native.md.
        Extension(
            "effkit.kernels.native._library",
            sources=[f"{NATIVE}/{name}.cpp" for name in ("library", "avx2", "avx512vnni")],
            depends=[f"{NATIVE}/int8_rows.h"],
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-fopenmp", "-fvisibility=hidden"],
            extra_link_args=["-fopenmp"],
            optional=True,
        )
    ],
)
