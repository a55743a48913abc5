// Implements roipoint_pool3d.
#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "roi_pooling/roi_points.h"
#include "roi_pooling/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/roi_pooling.h"

namespace turnout {

using namespace core;
using namespace families::roi_pooling;

void roipoint_pool3d(const ConstTensor& points, const ConstTensor& features, const ConstTensor& boxes,
                     const Tensor& pooled, const Tensor& empty, BoxZ z, double margin, const Caller& caller) {
  Call call(caller, kRoipointPool3d, {points, features, boxes, pooled, empty}, {z, margin});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t batch = points.shape[0], point_count = points.shape[1], channels = features.shape[2];
  const std::int64_t box_count = boxes.shape[1], samples = pooled.shape[2], width = channels + 3;
  const std::int64_t box_bytes = samples * width * size_of(pooled.dtype);
  const bool is_parallel = box_count * box_bytes >= kParallelBytes;
  call.chose("lists by box", is_parallel ? context.threads() : 1);
  visit_lane(points.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    // Takes the memory of all lists of a sample before the first write.
    RoiPoints<Real> inside(context, box_count, std::clamp<std::int64_t>(samples, 1, point_count + 1));
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto* xyz = static_cast<const Real*>(points.data) + b * point_count * 3;
      const auto* its_features = static_cast<const Real*>(features.data) + b * point_count * channels;
      inside.find(static_cast<const Real*>(boxes.data) + b * box_count * 7, xyz, point_count,
                  {z == BoxZ::bottom, static_cast<float>(margin)});
      parallel_for(
          context, box_count, is_parallel ? 1 : box_count, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t m = begin; m < end; ++m) {
              Real* const to = static_cast<Real*>(pooled.data) + (b * box_count + m) * samples * width;
              const std::int64_t count = std::min(inside.count(m), samples);
              static_cast<std::int32_t*>(empty.data)[b * box_count + m] = inside.count(m) == 0;
              if (count == 0) {
                std::fill_n(to, samples * width, Real(0));
                continue;
              }
              for (std::int64_t s = 0; s < count; ++s) {
                const std::int64_t k = inside.of(m)[s];
                std::copy_n(xyz + 3 * k, 3, to + s * width);
                std::copy_n(its_features + k * channels, channels, to + s * width + 3);
              }
              // The other rows repeat these. What is copied doubles, so it begins at multiples of `count`.
              for (std::int64_t done = count; done < samples; done *= 2)
                std::copy_n(to, std::min(done, samples - done) * width, to + done * width);
            }
          });
    }
  });
}

}  // namespace turnout
