// The whole C++ interface.
#pragma once

#include "turnout/boxes.h"
#include "turnout/context.h"
#include "turnout/dynamic_scatter.h"
#include "turnout/error.h"
#include "turnout/grouping.h"
#include "turnout/moe_dispatch.h"
#include "turnout/moe_experts.h"
#include "turnout/moe_re_routing.h"
#include "turnout/mutual_information.h"
#include "turnout/points.h"
#include "turnout/rnnt_loss.h"
#include "turnout/roi_pooling.h"
#include "turnout/segments.h"
#include "turnout/sparse_conv.h"
#include "turnout/tensor.h"
#include "turnout/version.h"
