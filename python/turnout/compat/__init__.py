"""Stand-ins for other packages: their names, signatures and quirks as thin layers over Turnout.

``fast_rnnt``, ``k2``, ``mmcv``, ``pcdet``, ``pointops``, ``spconv``, ``torch_cluster``, ``torch_npu``,
``torch_scatter``, ``torchaudio`` and ``tutel``; ``transformers`` has an experts implementation. Import names
from a module such as ``turnout.compat.k2``, or call its ``install()``, after which programs that import the
package itself get these names.
"""
