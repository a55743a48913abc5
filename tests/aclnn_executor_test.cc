// Tests of the executors of the aclnn interface, with an operation made for them.
#include "bindings/aclnn/executor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/draft.h"

namespace turnout::bindings::aclnn {

using namespace core;
namespace {

constexpr StepSpec kSteps[] = {{Check::ranks}, {Check::dtypes}, {Check::scalars}, {Check::shapes}};

std::size_t no_scratch(const Arguments&, const Positions&) { return 0; }

// Repeats each element `factor` times: an extent depends on a scalar.
constexpr const Signature& kRepeat = signature([] {
  return Draft{"aclnnRepeat",
               "rows",
               {scalar("factor", 1, 64)},
               {in("x", dtypes(DType::i8), "rows"), out("y", like("x"), "rows * factor")},
               {},
               {},
               kSteps,
               {&no_scratch, "x"}};
});
constexpr Renames kNames(kRepeat, kRepeat, "");
constexpr Operation kOperation = {kRepeat, kRepeat, kNames,
                                  [](const Caller&, const Tensor*, const std::int64_t*) {}};

aclnnStatus repeat(std::int64_t rows, std::int64_t repeated, std::int64_t factor) {
  std::int8_t data[64] = {};
  aclTensor* x = aclCreateTensor(&rows, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, &rows, 1, data);
  aclTensor* y = aclCreateTensor(&repeated, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, &repeated, 1, data + 8);
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const aclnnStatus status = prepare(kOperation, {x, y}, {factor}, &size, &executor);
  const std::string message = aclGetRecentErrMsg();
  aclDestroyTensor(x);
  aclDestroyTensor(y);
  if (status != ACLNN_SUCCESS) {
    EXPECT_EQ(message, "aclnnRepeat: y.shape[0] is 5, expected 6 = x.shape[0] * factor");
    return status;
  }
  return execute(kOperation, {}, executor);
}

TEST(AclnnExecutor, extents_may_depend_on_scalars) {
  EXPECT_EQ(repeat(2, 6, 3), ACLNN_SUCCESS);
  EXPECT_EQ(repeat(2, 5, 3), ACLNN_ERR_PARAM_INVALID);
}

}  // namespace
}  // namespace turnout::bindings::aclnn
