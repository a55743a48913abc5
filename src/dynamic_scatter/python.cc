// Python bindings of this family.
#include "bindings/python/call.h"
#include "bindings/python/operators.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "core/check.h"
#include "dynamic_scatter/dynamic_scatter.h"
#include "dynamic_scatter/signature.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
using namespace bindings;

void bind_scatter(nb::module_& module);  // scatter_python.cc

namespace {

constexpr PythonFunction kVoxelizeAll{"voxelize", kVoxelize, "coors=out"};
constexpr PythonFunction kVoxelizeLimited{"voxelize", kVoxelizeWithLimits};
constexpr PythonFunction kVoxelizeMapped{"voxelize", kVoxelizeWithMap};
constexpr PythonFunction kForward{"dynamic_scatter_forward", kDynamicScatterForward};
constexpr PythonFunction kBackward{"dynamic_scatter_backward", kDynamicScatterBackward,
                                   "grad_feats=out voxel_num="};
constexpr PythonFunction kIndex{"VoxelIndex", kVoxelIndex};
constexpr PythonFunction kIndexWrite{"VoxelIndex", kVoxelIndexWrite};
constexpr PythonFunction kIndexReduce{"VoxelIndex.reduce", kVoxelIndexReduce,
                                      "voxel_feats=out points= voxels="};
constexpr PythonFunction kIndexReduceBackward{"VoxelIndex.reduce_backward", kVoxelIndexReduceBackward,
                                              "grad_feats=out points= voxels="};
constexpr PythonFunction kIndexFirstPoints{"VoxelIndex.first_point", kVoxelIndexFirstPoints,
                                           "points= voxels="};

// -- points into voxels ------------------------------------------------------------------------------------

nb::object voxelize_dynamic(nb::handle points, nb::handle voxel_size, nb::handle point_cloud_range,
                            nb::handle out, bool use_torch_threads) {
  PythonCall call(kVoxelizeAll, use_torch_threads);
  const ConstTensor from = call.in(points);
  const std::vector<double> size = call.numbers(voxel_size), range = call.numbers(point_cloud_range);
  const Tensor coors = call.out(out, {from.shape[0], 3});
  call.run([&](const Caller& caller) { voxelize(from, view(size), view(range), coors, caller); });
  return call.result();
}

nb::object voxelize_limited(nb::handle points, nb::handle voxel_size, nb::handle point_cloud_range,
                            nb::handle max_points, nb::handle max_voxels, bool with_map, nb::handle out,
                            bool use_torch_threads) {
  PythonCall call(with_map ? kVoxelizeMapped : kVoxelizeLimited, use_torch_threads);
  const ConstTensor from = call.in(points);
  const std::vector<double> size = call.numbers(voxel_size), range = call.numbers(point_cloud_range);
  const std::int64_t depth = call.scalar(max_points), most = call.scalar(max_voxels);
  const auto to = call.outs(out);
  // There are not more voxels than points: memory is for as many as there can be.
  const std::int64_t room = out.is_none() ? std::min(most, from.shape[0]) : most;
  Tensor voxels = call.out(to[0], {room, depth, from.shape[1]});
  Tensor coors = call.out(to[1], {room, 3});
  Tensor num = call.out(to[2], {room});
  const Tensor map = with_map ? call.out(to[3], {from.shape[0]}) : Tensor(nullptr);
  if (!out.is_none()) {
    if (with_map) {
      call.check(kVoxelizeWithMap, {from, view(size), view(range), voxels, coors, num, map},
                 {depth, most, true});
    } else {
      call.check(kVoxelizeWithLimits, {from, view(size), view(range), voxels, coors, num}, {depth, most});
    }
    for (int result = 0; result < 3; ++result) call.check_rows(result);
  }
  std::int64_t used = 0;
  call.run([&](const Caller& caller) {
    used = voxelize_hard(from, view(size), view(range), voxels, coors, num, map, caller);
  });
  call.shorten(0, voxels, used);
  call.shorten(1, coors, used);
  call.shorten(2, num, used);
  return call.result();
}

// -1: no limit, and the coordinates of all points.
nb::object voxelize_points(nb::handle points, nb::handle voxel_size, nb::handle point_cloud_range,
                           nb::handle max_points, nb::handle max_voxels, nb::handle return_map,
                           nb::handle out, bool use_torch_threads) {
  const PythonCall limits(kVoxelizeAll, use_torch_threads);
  const std::int64_t depth = limits.integer(max_points, "max_points");
  const std::int64_t most = limits.integer(max_voxels, "max_voxels");
  const bool with_map = limits.flag(return_map, "return_map");
  if (depth == -1 && most == -1) {
    if (with_map) limits.refuse("return_map is True, expected max_points and max_voxels with it");
    return voxelize_dynamic(points, voxel_size, point_cloud_range, out, use_torch_threads);
  }
  if (depth < 0 || most < 0)
    limits.refuse(concat("max_points is ", depth, " and max_voxels is ", most,
                         ", expected two limits of 0 or more, or -1 for both"));
  return voxelize_limited(points, voxel_size, point_cloud_range, max_points, max_voxels, with_map, out,
                          use_torch_threads);
}

// -- reductions --------------------------------------------------------------------------------------------

// The first rows of a result that has room for them all.
void fit(PythonCall& call, int result, Tensor& tensor, std::string_view name, std::int64_t voxels) {
  if (tensor.rank < 1) return;  // for the check of ranks to refuse
  if (tensor.shape[0] < voxels)
    call.refuse(concat(name, ".shape[0] is ", tensor.shape[0], ", expected ", voxels,
                       " or more: the voxels that coors has"));
  call.shorten(result, tensor, voxels);
}

nb::object forward(nb::handle feats, nb::handle coors, nb::handle reduce_type, nb::handle out,
                   bool use_torch_threads) {
  PythonCall call(kForward, use_torch_threads);
  const ConstTensor x = call.in(feats);
  const ConstTensor rows = call.in(coors);
  const auto reduce = call.named_choice<Reduce>(reduce_type);
  const auto to = call.outs(out);
  call.check(kScatterInputs, {x, rows});

  std::optional<PointIndex> index;
  call.prepare([&](const Caller& caller) { index.emplace(rows, caller); });
  const std::int64_t voxels = index->voxels();
  Tensor voxel_feats = call.out(to[0], {voxels, x.shape[1]});
  Tensor voxel_coors = call.out(to[1], {voxels, rows.shape[1]});
  const Tensor map = call.out(to[2], {x.shape[0]});
  Tensor count = call.out(to[3], {voxels});
  fit(call, 0, voxel_feats, "voxel_feats", voxels);
  fit(call, 1, voxel_coors, "voxel_coors", voxels);
  fit(call, 3, count, "voxel_points_count", voxels);
  call.run([&](const Caller& caller) {
    index->scatter(x, voxel_feats, voxel_coors, map, count, reduce, caller);
    index.reset();
  });
  return call.result();
}

nb::object backward(nb::handle grad_voxel_feats, nb::handle feats, nb::handle voxel_feats,
                    nb::handle point2voxel_map, nb::handle voxel_points_count, nb::handle reduce_type,
                    nb::handle out, bool use_torch_threads) {
  PythonCall call(kBackward, use_torch_threads);
  const ConstTensor grad = call.in(grad_voxel_feats);
  const ConstTensor x = call.optional_in(feats);
  const ConstTensor reduced = call.optional_in(voxel_feats);
  const ConstTensor map = call.in(point2voxel_map);
  const ConstTensor count = call.optional_in(voxel_points_count);
  call.optional_in(nb::none());  // voxel_num: all rows are voxels
  const auto reduce = call.named_choice<Reduce>(reduce_type);
  const Tensor grad_feats = call.out(out, {map.shape[0], grad.shape[1]});
  call.run([&](const Caller& caller) {
    dynamic_scatter_backward(grad, x, reduced, map, count, nullptr, grad_feats, reduce, caller);
  });
  return call.result();
}

// -- an index for many reductions --------------------------------------------------------------------------

struct PythonIndex {
  explicit PythonIndex(bool on_torch_team) : use_torch_threads(on_torch_team) {}
  PythonIndex(const PythonIndex&) = delete;
  PythonIndex& operator=(const PythonIndex&) = delete;
  ~PythonIndex() {
    const WithoutGil release;  // its memory is large, and may be unmapped
    index.reset();
  }
  bool use_torch_threads;
  std::optional<PointIndex> index;
  nb::object map;  // point2voxel_map, which says all that the index knows
};

constexpr int kIndexScalars = 2;  // points and voxels, which the index knows

nb::object index_new(nb::handle coors, bool use_torch_threads) {
  PythonCall call(kIndex, use_torch_threads);
  const ConstTensor rows = call.in(coors);
  nb::object made = nb::cast(new PythonIndex(use_torch_threads), nb::rv_policy::take_ownership);
  std::optional<PointIndex>& index = nb::inst_ptr<PythonIndex>(made)->index;
  call.prepare([&](const Caller& caller) { index.emplace(rows, caller); });
  // Here and never again: coors may be gone after this call.
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

// An index is pickled as its map, and made of it again: the voxel numbers are coordinates of one dimension,
// and since all of them have points, their order is the same.
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
  PythonCall call(kIndexReduce, on.use_torch_threads, kIndexScalars);
  const ConstTensor x = call.in(feats);
  const auto reduce = call.named_choice<Reduce>(reduce_type);
  const Tensor voxel_feats = call.out(out, {on.index->voxels(), x.shape[1]});
  call.run([&](const Caller& caller) { on.index->reduce(x, voxel_feats, reduce, caller); });
  return call.result();
}

nb::object index_reduce_backward(const PythonIndex& on, nb::handle grad_voxel_feats, nb::handle feats,
                                 nb::handle voxel_feats, nb::handle reduce_type, nb::handle out) {
  PythonCall call(kIndexReduceBackward, on.use_torch_threads, kIndexScalars);
  const ConstTensor grad = call.in(grad_voxel_feats);
  const ConstTensor x = call.optional_in(feats);
  const ConstTensor reduced = call.optional_in(voxel_feats);
  const auto reduce = call.named_choice<Reduce>(reduce_type);
  const Tensor grad_feats = call.out(out, {on.index->points(), grad.shape[1]});
  call.run(
      [&](const Caller& caller) { on.index->reduce_backward(grad, x, reduced, grad_feats, reduce, caller); });
  return call.result();
}

nb::object index_first_points(const PythonIndex& on) {
  PythonCall call(kIndexFirstPoints, on.use_torch_threads, kIndexScalars);
  call.kind(on.map, DType::i32);
  const Tensor first_point = call.out(nb::none(), {on.index->voxels()});
  call.run([&](const Caller& caller) { on.index->first_points(first_point, caller); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  bound_by_hand("voxelize_hard");  // turnout.voxelize with limits
  for (const PythonFunction* function : {&kVoxelizeAll, &kVoxelizeMapped, &kForward, &kBackward, &kIndex,
                                         &kIndexReduce, &kIndexReduceBackward})
    list_function(*function);
  nb::class_<PythonIndex>(module, "VoxelIndex", "The points of each voxel.")
      .def("__getstate__", &index_state)
      .def("__setstate__", [](PythonIndex& on, const nb::tuple& state) {
        restore_index(on, state[0], nb::cast<bool>(state[1]));
      });
  define(module, "voxelize", &voxelize_points);
  define(module, "dynamic_scatter_forward", &forward);
  define(module, "dynamic_scatter_backward", &backward);
  define(module, "voxel_index", &index_new);
  define(module, "voxel_index_reduce", &index_reduce);
  define(module, "voxel_index_reduce_backward", &index_reduce_backward);
  define(module, "voxel_index_first_points", &index_first_points);
  bind_scatter(module);
}

}  // namespace turnout::families::dynamic_scatter
