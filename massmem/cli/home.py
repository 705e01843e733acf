"""massmem's own folder, for the command line."""

from massmem.home import massmem_home

__all__ = ["massmem_home"]
