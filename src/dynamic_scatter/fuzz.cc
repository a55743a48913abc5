// Differential fuzzer: any coordinates, any features, any map; every instruction set against the definition.
#include <cstring>

#include "dynamic_scatter/scatter_case.h"
#include "fuzz.h"
#include "isas.h"

namespace turnout::test {
namespace {

template <class T, class Index>
void run(FuzzInput& in) {
  ScatterCase<T, Index> c{in.between(0, 60), in.between(0, 40), in.between(1, 4)};
  const bool wild = in.one_in(4);
  for (std::int64_t i = 0; i < c.points * c.dims; ++i)
    c.coors.push_back(wild ? in.value<Index>() : static_cast<Index>(in.between(-1, 5)));
  for (std::int64_t i = 0; i < c.points * c.channels; ++i)
    c.feats.push_back(rounded<T>(static_cast<LaneOf<T>>(in.between(0, 15)) / 4 - 2));
  const auto found = static_cast<std::int64_t>(c.voxels().size());
  const std::int64_t room = found + in.between(0, 2);
  for (const Reduce reduce_type : kReductions) {
    const auto expected = c.expected_forward(reduce_type, room);
    const auto expected_grad = c.expected_backward(expected.voxel_feats, expected.voxel_feats, expected.map,
                                                   expected.count, reduce_type);
    for (const Isa isa : supported_isas()) {
      Context context({.threads = 2, .isa = isa});
      const auto r = c.forward(context, reduce_type, room);
      require(r.voxels == found && same_bits(r.voxel_feats, expected.voxel_feats) &&
              same_bits(r.voxel_coors, expected.voxel_coors) && same_bits(r.map, expected.map) &&
              same_bits(r.count, expected.count));
      require(same_bits(c.backward(context, r.voxel_feats, r.voxel_feats, r.map, r.count, reduce_type),
                        expected_grad));
    }
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  switch (in.between(0, 5)) {
    case 0:
      turnout::test::run<double, std::int64_t>(in);
      break;
    case 1:
      turnout::test::run<turnout::f16, std::int32_t>(in);
      break;
    case 2:
      turnout::test::run<turnout::bf16, std::int64_t>(in);
      break;
    default:
      turnout::test::run<float, std::int32_t>(in);
  }
  return 0;
}
