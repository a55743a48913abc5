// Computes a sparse convolution of three voxels in a grid of 16^3 cells: the index pairs, then the
// convolution. The filter is all ones, so each output is the number of voxels in its window.
#include <turnout/turnout.h>

#include <cstdio>
#include <vector>

int main() {
  const std::vector<std::int32_t> sites = {0, 4, 4, 4,   // batch, z, y, x
                                           0, 4, 4, 5,   //
                                           0, 9, 9, 9};  //
  const std::size_t rows = 3, columns = 4;
  try {
    const turnout::IndicePairs pairs(
        turnout::view(sites, {rows, columns}),
        {.batch_size = 1, .spatial_shape = {16, 16, 16}, .kernel_size = 3, .stride = 2, .padding = 1});
    const std::int64_t outputs = pairs.num_act_out(), offsets = pairs.kernel_volume();
    std::vector<std::int32_t> out_sites(static_cast<std::size_t>(outputs) * columns);
    std::vector<std::int32_t> indice_pairs(static_cast<std::size_t>(offsets) * 2 * rows);
    std::vector<std::int32_t> indice_num(static_cast<std::size_t>(offsets));
    pairs.write(turnout::view(out_sites, {outputs, columns}), turnout::view(indice_pairs, {offsets, 2, rows}),
                turnout::view(indice_num));

    const std::vector<float> features(rows, 1.f), filters(static_cast<std::size_t>(offsets), 1.f);
    std::vector<float> result(static_cast<std::size_t>(outputs));
    turnout::indice_convolution_forward(
        turnout::view(features, {rows, 1}), turnout::view(filters, {offsets, 1, 1}),
        turnout::view(indice_pairs, {offsets, 2, rows}), turnout::view(indice_num), nullptr, nullptr,
        turnout::view(result, {outputs, 1}));

    float sum = 0;
    std::int64_t found = 0;
    for (std::size_t o = 0; o < result.size(); ++o) {
      const std::int32_t* site = &out_sites[o * columns];
      std::printf("output (%d, %d, %d): voxels in its window: %g\n", site[1], site[2], site[3], result[o]);
      sum += result[o];
    }
    for (const std::int32_t n : indice_num) found += n;
    return sum == static_cast<float>(found) && outputs == 10 ? 0 : 1;
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// Output:
//   output (2, 2, 2): voxels in its window: 2
//   output (2, 2, 3): voxels in its window: 1
//   output (4, 4, 4): voxels in its window: 1
//   output (4, 4, 5): voxels in its window: 1
//   output (4, 5, 4): voxels in its window: 1
//   output (4, 5, 5): voxels in its window: 1
//   output (5, 4, 4): voxels in its window: 1
//   output (5, 4, 5): voxels in its window: 1
//   output (5, 5, 4): voxels in its window: 1
//   output (5, 5, 5): voxels in its window: 1
