// Hand-written Python bindings of this family: VoxelIndex, which is an object.
#include "bindings/python/call.h"
#include "bindings/python/operators.h"

#include <optional>

#include "core/check.h"
#include "dynamic_scatter/dynamic_scatter.h"
#include "dynamic_scatter/segment_signature.h"
#include "dynamic_scatter/signature.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
using namespace bindings;

namespace {

// Python functions that differ from the operators: turnout.voxelize covers two of them, and scatter_sum,
// scatter_mean, scatter_max and scatter_min move a dimension to the front.
constexpr PythonFunction kVoxelizeWithLimits{"voxelize", kVoxelizeHard};
constexpr ScalarSpec kDim = scalar("dim", -kMaxRank, kMaxRank - 1);
constexpr PythonFunction kSum{"scatter_sum", kScatterSum, "", {kDim}};
constexpr PythonFunction kMean{"scatter_mean", kScatterMean, "", {kDim}};
constexpr PythonFunction kMax{"scatter_max", kScatterMax, "", {kDim}};
constexpr PythonFunction kMin{"scatter_min", kScatterMin, "", {kDim}};

constexpr PythonFunction kIndex{"VoxelIndex", kVoxelIndex};
constexpr PythonFunction kIndexWrite{"VoxelIndex", kVoxelIndexWrite};
constexpr PythonFunction kIndexReduce{"VoxelIndex.reduce", kVoxelIndexReduce,
                                      "voxel_feats=out points= voxels="};
constexpr PythonFunction kIndexReduceBackward{"VoxelIndex.reduce_backward", kVoxelIndexReduceBackward,
                                              "grad_feats=out points= voxels="};
constexpr PythonFunction kIndexFirstPoints{"VoxelIndex.first_point", kVoxelIndexFirstPoints,
                                           "points= voxels="};

// -- an index for many reductions --------------------------------------------------------------------------

struct PythonIndex {
  explicit PythonIndex(bool on_torch_team) : use_torch_threads(on_torch_team) {}
  PythonIndex(const PythonIndex&) = delete;
  PythonIndex& operator=(const PythonIndex&) = delete;
  ~PythonIndex() {
    const WithoutGil release;  // unmapping its large memory may take a while
    index.reset();
  }
  bool use_torch_threads;
  std::optional<PointIndex> index;
  nb::object map;  // point2voxel_map, from which the index can be restored
};

nb::object index_new(nb::handle coors, bool use_torch_threads) {
  PythonCall call(kIndex, use_torch_threads);
  const ConstTensor rows = call.in(coors);
  nb::object made = nb::cast(new PythonIndex(use_torch_threads), nb::rv_policy::take_ownership);
  std::optional<PointIndex>& index = nb::inst_ptr<PythonIndex>(made)->index;
  call.prepare([&](const Caller& caller) { index.emplace(rows, caller); });
  // Write now, because coors may be gone after this call.
  PythonCall write(kIndexWrite, use_torch_threads);
  write.continue_after(call);
  write.kind(coors, rows.dtype);
  const Tensor voxel_coors = write.out(nb::none(), {index->voxels(), rows.shape[1]});
  const Tensor map = write.out(nb::none(), {index->points()});
  const Tensor count = write.out(nb::none(), {index->voxels()});
  write.run([&](const Caller& caller) { index->write(voxel_coors, map, count, caller); });
  const nb::object arrays = write.result();
  nb::inst_ptr<PythonIndex>(made)->map = arrays[1];
  return nb::make_tuple(made, arrays);
}

// An index is pickled as its map and restored from it: the voxel numbers become coordinates of one dimension.
// Since all voxels have points, their order stays the same.
nb::tuple index_state(const PythonIndex& on) { return nb::make_tuple(on.map, on.use_torch_threads); }

void restore_index(PythonIndex& on, nb::handle map, bool use_torch_threads) {
  new (&on) PythonIndex(use_torch_threads);
  PythonCall call(kVoxelIndexRestore, use_torch_threads);
  const ConstTensor voxels = call.in(map);
  call.check(kVoxelIndexRestore, {voxels});
  call.run([&](const Caller& caller) {
    on.index.emplace(ConstTensor(voxels.data, voxels.dtype, {voxels.shape[0], 1}), caller);
  });
  on.map = nb::borrow(map);
}

nb::object index_reduce(const PythonIndex& on, nb::handle feats, nb::handle reduce_type, nb::handle out) {
  PythonCall call(kIndexReduce, on.use_torch_threads);
  const ConstTensor x = call.in(feats);
  const auto reduce = call.named_choice<Reduce>(reduce_type, "reduce_type");
  const Tensor voxel_feats = call.out(out, {on.index->voxels(), x.shape[1]});
  call.run([&](const Caller& caller) { on.index->reduce(x, voxel_feats, reduce, caller); });
  return call.result();
}

nb::object index_reduce_backward(const PythonIndex& on, nb::handle grad_voxel_feats, nb::handle feats,
                                 nb::handle voxel_feats, nb::handle reduce_type, nb::handle out) {
  PythonCall call(kIndexReduceBackward, on.use_torch_threads);
  const ConstTensor grad = call.in(grad_voxel_feats);
  const ConstTensor x = call.optional_in(feats);
  const ConstTensor reduced = call.optional_in(voxel_feats);
  const auto reduce = call.named_choice<Reduce>(reduce_type, "reduce_type");
  const Tensor grad_feats = call.out(out, {on.index->points(), grad.shape[1]});
  call.run(
      [&](const Caller& caller) { on.index->reduce_backward(grad, x, reduced, grad_feats, reduce, caller); });
  return call.result();
}

nb::object index_first_points(const PythonIndex& on) {
  PythonCall call(kIndexFirstPoints, on.use_torch_threads);
  call.kind(on.map, DType::i32);
  const Tensor first_point = call.out(nb::none(), {on.index->voxels()});
  call.run([&](const Caller& caller) { on.index->first_points(first_point, caller); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  for (const PythonFunction* function : {&kVoxelizeWithLimits, &kSum, &kMean, &kMax, &kMin})
    bound_as(*function);
  for (const PythonFunction* function : {&kIndex, &kIndexReduce, &kIndexReduceBackward})
    list_function(*function);
  nb::class_<PythonIndex>(module, "VoxelIndex", "The points of each voxel.")
      .def("__getstate__", &index_state)
      .def("__setstate__", [](PythonIndex& on, const nb::tuple& state) {
        restore_index(on, state[0], nb::cast<bool>(state[1]));
      });
  define(module, "voxel_index", &index_new);
  define(module, "voxel_index_reduce", &index_reduce);
  define(module, "voxel_index_reduce_backward", &index_reduce_backward);
  define(module, "voxel_index_first_points", &index_first_points);
}

}  // namespace turnout::families::dynamic_scatter
