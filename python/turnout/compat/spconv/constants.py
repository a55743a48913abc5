"""Settings of spconv. Programs may assign them; nothing here depends on them."""

ALL_WEIGHT_IS_KRSC = True
FILTER_HWIO = False
SPCONV_ALLOW_TF32 = False
SPCONV_CPP_GEMM = True
SPCONV_CPP_INDICE_PAIRS = True
SPCONV_DO_SORT = True
SPCONV_FX_TRACE_MODE = False
SPCONV_USE_DIRECT_TABLE = True
