// The C functions of this family, each with its order of checks.

#include "bindings/mluop/call.h"
#include "core/draft.h"
#include "sparse_conv/c_descriptor.h"
#include "sparse_conv/signature.h"
#include "sparse_conv/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;
using namespace bindings;
namespace {

constexpr StepSpec kQuerySteps[] = {
    {Check::present},
    {Check::any_empty},
    {Check::ranks},
    {Check::shapes, ErrorCode::bad_param, "indices.1 out_indices.1 indice_pairs.1"},
    {Check::shapes},
    {Check::rules, ErrorCode::bad_param, "input_space"},
    {Check::scalars},
    {Check::data, ErrorCode::bad_param, "dilation"},
    {Check::rules, ErrorCode::bad_param, "kernel output_space"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::rules, ErrorCode::bad_param, "limit"},
    {Check::large, ErrorCode::not_supported},
    {Check::dtypes},
    {Check::data, ErrorCode::bad_param, "sub_m"}};

// The operator checks that sites are in range, in a pass that reads them anyway.
constexpr StepSpec kPairsSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::shapes, ErrorCode::bad_param, "indices.1 out_indices.1 indice_pairs.1"},
    {Check::shapes},
    {Check::rules, ErrorCode::bad_param, "input_space"},
    {Check::scalars},
    {Check::data, ErrorCode::bad_param, "dilation"},
    {Check::rules, ErrorCode::bad_param, "kernel output_space"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::rules, ErrorCode::bad_param, "limit"},
    {Check::large, ErrorCode::not_supported},
    {Check::dtypes},
    {Check::data, ErrorCode::bad_param, "sub_m"},
    {Check::any_empty},
    {Check::pointers},
    {Check::workspace}};

void check_dilation(const Arguments& arguments, const Positions& at) {
  const std::int64_t *stride = arguments.scalar(at[0]).values, *dilation = arguments.scalar(at[1]).values;
  for (std::int64_t d = 0; d < mluOpSparseConvolutionStruct::kDims; ++d)
    if (dilation[d] != 1 && stride[d] != 1)
      arguments.fail(ErrorCode::bad_param, concat("dilation[", d, "] is ", dilation[d], " and stride[", d,
                                                  "] is ", stride[d], ", expected 1 for one of them"));
}

void check_submanifold(const Arguments& arguments, const Positions& at) {
  if (arguments.size(at[0]) == 0) return;
  const std::int64_t ones[] = {1, 1, 1};
  const auto expect = [&](int scalar, const std::int64_t* expected) {
    const std::int64_t* given = arguments.scalar(scalar).values;
    for (std::int64_t d = 0; d < mluOpSparseConvolutionStruct::kDims; ++d)
      if (given[d] != expected[d])
        arguments.fail(ErrorCode::bad_param, concat(arguments.signature().names[scalar], "[", d, "] is ",
                                                    given[d], ", expected ", expected[d], " with sub_m"));
  };
  expect(at[1], arguments.scalar(at[2]).values);
  expect(at[3], ones);
  expect(at[4], ones);
}

std::size_t scratch_bytes(const Arguments& arguments, const Positions& at) {
  const auto dims = [&](int i) {
    return Dims(arguments.scalar(at[i]).values, mluOpSparseConvolutionStruct::kDims);
  };
  return PairIndexPlan(arguments.size(at[0]),
                       {.batch_size = arguments.size(at[1]),
                        .spatial_shape = dims(2),
                        .kernel_size = dims(3),
                        .stride = dims(4),
                        .padding = dims(5),
                        .dilation = dims(6),
                        .output_shape = dims(7),
                        .mode = arguments.size(at[8]) == 0 ? ConvMode::sparse : ConvMode::submanifold})
      .scratch_bytes();
}
constexpr ScratchBytes kScratch = {
    &scratch_bytes, "rows batch_size input_space filter_space stride pad dilation output_space sub_m"};

consteval Draft indice_pairs_c(std::string_view op, std::span<const StepSpec> steps) {
  return Draft{op,
               "rows out_rows",
               {scalar("batch_size", 1), vector("pad", "3", 0), vector("stride", "3", 1),
                vector("dilation", "3", 1), vector("input_space", "3", 1), vector("filter_space", "3", 1),
                vector("output_space", "3", 1), choice("sub_m", "sparse submanifold")},
               {in("indices", dtypes(DType::i32), "rows, 4"),
                out("indice_pairs", dtypes(DType::i32), "volume(filter_space), 2, rows"),
                out("out_indices", dtypes(DType::i32), "out_rows, 4"),
                out("indice_num", dtypes(DType::i32), "volume(filter_space)")},
               {at_most("rows", "batch_size * volume(input_space)", "input_space"),
                at_most("volume(filter_space)", "4096", "kernel"),
                at_most("out_rows", "batch_size * volume(output_space)", "output_space"),
                at_most("rows", "1000000", "limit")},
               {{"dilation", "in each dimension dilation or stride is 1", &check_dilation, "stride dilation"},
                {"sub_m", "with sub_m: output_space is input_space, stride and dilation are 1",
                 &check_submanifold, "sub_m output_space input_space stride dilation"}},
               steps,
               kScratch};
}

ScalarValue vector_value(const Dims& dims) { return {dims.data(), dims.count()}; }

}  // namespace

constexpr const Signature& kMluOpGetIndicePairsWorkspaceSize =
    signature([] { return indice_pairs_c("mluOpGetIndicePairsWorkspaceSize", kQuerySteps); });
constexpr const Signature& kMluOpGetIndicePairs =
    signature([] { return indice_pairs_c("mluOpGetIndicePairs", kPairsSteps); });

namespace {
constexpr Renames kPairsNames(kGetIndicePairs, kMluOpGetIndicePairs,
                              "spatial_shape=input_space kernel_size=filter_space padding=pad "
                              "output_shape=output_space mode=sub_m");
}

}  // namespace turnout::families::sparse_conv

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::sparse_conv;

mluOpStatus_t mluOpGetIndicePairsWorkspaceSize(mluOpHandle_t handle,
                                               const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
                                               const mluOpTensorDescriptor_t indices_desc,
                                               const mluOpTensorDescriptor_t indice_pairs_desc,
                                               const mluOpTensorDescriptor_t out_indices_desc,
                                               const mluOpTensorDescriptor_t indice_num_desc,
                                               size_t* workspace_size) {
  if (sparse_conv_desc == nullptr)
    return refuse_null(__func__, handle == nullptr ? "handle" : "sparse_conv_desc");
  const turnout::IndicePairsParams& p = sparse_conv_desc->params;
  return query(
      handle, kMluOpGetIndicePairsWorkspaceSize,
      {indices_desc, indice_pairs_desc, out_indices_desc, indice_num_desc},
      {p.batch_size, vector_value(p.padding), vector_value(p.stride), vector_value(p.dilation),
       vector_value(p.spatial_shape), vector_value(p.kernel_size), vector_value(p.output_shape), p.mode},
      workspace_size);
}

mluOpStatus_t mluOpGetIndicePairs(mluOpHandle_t handle,
                                  const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
                                  const mluOpTensorDescriptor_t indices_desc, const void* indices,
                                  void* workspace, const size_t workspace_size,
                                  const mluOpTensorDescriptor_t indice_pairs_desc, void* indice_pairs,
                                  const mluOpTensorDescriptor_t out_indices_desc, void* out_indices,
                                  const mluOpTensorDescriptor_t indice_num_desc, void* indice_num) {
  if (sparse_conv_desc == nullptr)
    return refuse_null(__func__, handle == nullptr ? "handle" : "sparse_conv_desc");
  const turnout::IndicePairsParams& p = sparse_conv_desc->params;
  bool ran = false;
  std::int64_t num_act_out = 0;
  const mluOpStatus_t status =
      call(handle, kMluOpGetIndicePairs, kPairsNames,
           {{indices_desc, indices},
            {indice_pairs_desc, indice_pairs},
            {out_indices_desc, out_indices},
            {indice_num_desc, indice_num}},
           {p.batch_size, vector_value(p.padding), vector_value(p.stride), vector_value(p.dilation),
            vector_value(p.spatial_shape), vector_value(p.kernel_size), vector_value(p.output_shape), p.mode},
           [&](const Caller& caller, const turnout::Tensor* t) {
             ran = true;
             num_act_out = get_indice_pairs(t[0], t[2], t[1], t[3], p, caller);
           },
           {workspace, workspace_size});
  if (status != MLUOP_STATUS_SUCCESS) return status;
  if (!ran) {
    fill_result({indice_pairs_desc, indice_pairs}, 0xFF);
    fill_result({out_indices_desc, out_indices}, 0xFF);
    fill_result({indice_num_desc, indice_num}, 0);
  }
  sparse_conv_desc->num_act_out = static_cast<int>(num_act_out);
  return status;
}

mluopStatus_t mluopGetIndicePairsWorkspaceSize(mluOpHandle_t handle,
                                               const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
                                               const mluOpTensorDescriptor_t indices_desc,
                                               const mluOpTensorDescriptor_t indice_pairs_desc,
                                               const mluOpTensorDescriptor_t out_indices_desc,
                                               const mluOpTensorDescriptor_t indice_num_desc,
                                               size_t* workspace_size) {
  return mluOpGetIndicePairsWorkspaceSize(handle, sparse_conv_desc, indices_desc, indice_pairs_desc,
                                          out_indices_desc, indice_num_desc, workspace_size);
}

mluopStatus_t mluopGetIndicePairs(mluOpHandle_t handle,
                                  const mluOpSparseConvolutionDescriptor_t sparse_conv_desc,
                                  const mluOpTensorDescriptor_t indices_desc, const void* indices,
                                  void* workspace, size_t workspace_size,
                                  const mluOpTensorDescriptor_t indice_pairs_desc, void* indice_pairs,
                                  const mluOpTensorDescriptor_t out_indices_desc, void* out_indices,
                                  const mluOpTensorDescriptor_t indice_num_desc, void* indice_num) {
  return mluOpGetIndicePairs(handle, sparse_conv_desc, indices_desc, indices, workspace, workspace_size,
                             indice_pairs_desc, indice_pairs, out_indices_desc, out_indices, indice_num_desc,
                             indice_num);
}
