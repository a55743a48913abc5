"""Other projects' names, one module for each package: its signatures and quirks, thin over Turnout's own.

``turnout.compat.mmcv``, ``turnout.compat.spconv``, ``turnout.compat.torch_npu``. Import a name from there, or
call ``install()``, after which programs that import the package itself get these names.
"""
