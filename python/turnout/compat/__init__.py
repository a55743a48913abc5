"""Other projects' names, one module for each package: its signatures and quirks, thin over Turnout's own.

``fast_rnnt``, ``k2``, ``mmcv``, ``pcdet``, ``spconv``, ``torch_npu``, ``torch_scatter``, ``torchaudio`` and
``tutel``; ``transformers`` has an experts implementation. Import a name from ``turnout.compat.k2``, say, or
call its ``install()``, after which programs that import the package itself get these names.
"""
