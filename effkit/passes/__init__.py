"""The passes, one file each: frozen settings that can plan and apply themselves. Found by :mod:`effkit.registry`."""
