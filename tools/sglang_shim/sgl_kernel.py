"""Stands where SGLang's compiled kernels stand, on a processor for which there are none to install.

SGLang takes the names of CPU kernels at import and calls them only on processors with AMX. So every ``..._cpu`` is
there, and says what is missing if it is called after all; anything else is as absent as it would be.
"""


def __getattr__(name):
    if not name.endswith("_cpu"):
        raise AttributeError(f"module 'sgl_kernel' has no attribute {name!r}")

    def kernel(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name}: this environment has no compiled kernels")

    kernel.__name__ = name
    return kernel
