// Differential fuzzer: any geometry and any sites; a legal call equals the definition on every instruction
// set, a site out of range is refused whole.
#include <cstdint>
#include <vector>

#include "fuzz.h"
#include "isas.h"
#include "sparse_conv/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class Index>
void run(FuzzInput& in) {
  const int dims = static_cast<int>(in.between(1, 4));
  IndicePairsParams p;
  p.batch_size = in.between(1, 3);
  p.mode = static_cast<ConvMode>(in.between(0, 2));
  const bool subm = p.mode == ConvMode::submanifold;
  const std::int64_t longest = dims == 1 ? 200 : dims == 2 ? 40 : 9;
  for (Dims* values : {&p.spatial_shape, &p.kernel_size, &p.stride, &p.padding, &p.dilation, &p.output_shape})
    *values = Dims::filled(dims, 1);
  for (int d = 0; d < dims; ++d) {
    p.spatial_shape[d] = in.between(1, longest);
    p.kernel_size[d] = in.between(1, dims == 1 ? 40 : 4);
    p.padding[d] = in.between(0, in.one_in(8) ? 300 : 4);
    p.dilation[d] = in.between(1, in.one_in(8) ? 50 : 3);
    if (!subm) p.stride[d] = in.between(1, 4);
    p.output_shape[d] = subm ? p.spatial_shape[d] : in.between(1, longest);
  }
  // A space far beyond the sites takes the other index.
  if (in.one_in(4)) p.spatial_shape[0] = p.output_shape[0] = 2147483647;

  const std::int64_t rows = in.between(0, 60), columns = dims + 1;
  std::vector<reference::Site> sites;
  std::vector<Index> indices;
  for (std::int64_t i = 0; i < rows; ++i) {
    sites.emplace_back();
    for (int c = 0; c <= dims; ++c) {
      const std::int64_t limit = c == 0 ? p.batch_size : p.spatial_shape[c - 1];
      sites.back().push_back(in.one_in(16) ? limit - 1
                                           : in.between(0, std::min<std::int64_t>(limit, 40) - 1));
      indices.push_back(static_cast<Index>(sites.back().back()));
    }
  }
  const bool legal = rows == 0 || !in.one_in(8);
  if (!legal) {
    const std::int64_t i = in.between(0, rows * columns - 1);
    const std::int64_t limit =
        i % columns == 0 ? p.batch_size : p.spatial_shape[static_cast<int>(i % columns) - 1];
    indices[static_cast<std::size_t>(i)] = static_cast<Index>(in.flag() || limit == 2147483647 ? -1 : limit);
  }
  const reference::Pairs expected = legal ? reference::indice_pairs(sites, p) : reference::Pairs{};
  const auto active = static_cast<std::int64_t>(expected.outputs.size());
  const std::int64_t room = active + in.between(0, 2);

  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    bool refused = false;
    try {
      const IndicePairs index(context, view(indices.data(), {rows, columns}), p);
      const std::int64_t volume = index.kernel_volume();
      require(index.num_act_out() == active);
      std::vector<Index> out(static_cast<std::size_t>(room * columns), 7);
      std::vector<std::int32_t> pairs(static_cast<std::size_t>(volume * 2 * rows), 7);
      std::vector<std::int32_t> num(static_cast<std::size_t>(volume), 7);
      index.write(view(out.data(), {room, columns}), view(pairs.data(), {volume, 2, rows}),
                  view(num.data(), {volume}));
      for (std::int64_t i = 0; i < room * columns; ++i)
        require(out[static_cast<std::size_t>(i)] ==
                (i < active * columns ? static_cast<Index>(expected.outputs[static_cast<std::size_t>(
                                            i / columns)][static_cast<std::size_t>(i % columns)])
                                      : Index{-1}));
      for (std::int64_t k = 0; k < volume; ++k) {
        for (int side = 0; side < 2; ++side) {
          const auto& list = (side == 0 ? expected.in : expected.out)[static_cast<std::size_t>(k)];
          require(num[static_cast<std::size_t>(k)] == static_cast<std::int32_t>(list.size()));
          for (std::int64_t j = 0; j < rows; ++j)
            require(pairs[static_cast<std::size_t>((2 * k + side) * rows + j)] ==
                    (j < static_cast<std::int64_t>(list.size()) ? list[static_cast<std::size_t>(j)] : -1));
        }
      }
    } catch (const Error&) {
      refused = true;
    }
    require(refused == !legal);
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  if (in.flag()) {
    turnout::test::run<std::int32_t>(in);
  } else {
    turnout::test::run<std::int64_t>(in);
  }
  return 0;
}
