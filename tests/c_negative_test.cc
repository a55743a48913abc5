// Calls every C operator with every fault that its signature can detect, one and two at a time. The status
// must be that of the first step that detects one of the faults, the message must name the argument, and
// nothing may be written. The test has no code per operator.
#include <gtest/gtest.h>

#include <set>

#include "c_faults.h"
#include "last_log_line.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

TEST_P(CNegative, TheExampleItselfSucceeds) {
  BrokenCall call(op);
  EXPECT_EQ(invoke(call), MLUOP_STATUS_SUCCESS) << last_message;
  EXPECT_EQ(last_message, "");
}

// Workspace queries run no operator and are not logged.
TEST_P(CNegative, TheExampleLogsOneLineWithItsAlgorithm) {
  BrokenCall call(op);
  const LastLogLine line;
  ASSERT_EQ(invoke(call), MLUOP_STATUS_SUCCESS) << last_message;
  const bool is_query = signature.op.ends_with("WorkspaceSize");
  ASSERT_EQ(line.count(), is_query ? 0 : 1) << line.text();
  if (is_query) return;
  EXPECT_TRUE(line.has("[turnout] " + std::string(signature.op) + "(")) << line.text();
  EXPECT_NE(line.value("algorithm"), "") << line.text();
}

// The line has the dtype, shape and layout of every tensor, and the value of every scalar.
TEST_P(CNegative, TheLogLineHasEveryArgument) {
  if (signature.op.ends_with("WorkspaceSize")) return;  // queries are not logged
  BrokenCall call(op);
  const LastLogLine line;
  ASSERT_EQ(invoke(call), MLUOP_STATUS_SUCCESS) << last_message;
  const auto joined = [](const auto& values, const char* separator) {
    std::string text;
    for (std::int64_t value : values) text += (text.empty() ? "" : separator) + std::to_string(value);
    return text;
  };
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    std::string expected = std::string(argument.name) + " " +
                           std::string(name_of(call.example.tensors[static_cast<std::size_t>(i)].dtype)) +
                           "[" + joined(call.shape(i), ", ") + "]";
    if (!argument.by_pointer) expected += " LAYOUT_ARRAY";
    EXPECT_TRUE(line.has(expected)) << expected << " is not in " << line.text();
  }
  for (int i = 0; i < signature.scalars.count; ++i) {
    const auto n = static_cast<std::size_t>(i);
    const core::Scalar& scalar = signature.scalars[i];
    std::string expected = std::string(scalar.name) + " ";
    if (!scalar.is_real)
      expected +=
          scalar.is_vector ? joined(call.example.vectors[n], "x") : std::to_string(call.example.sizes[n]);
    EXPECT_TRUE(line.has(expected)) << expected << " is not in " << line.text();
  }
}

// Calls with nothing to compute are logged from level 5 on. Some still write results, and are calls.
TEST_P(CNegative, EmptyCallsAreLoggedFromLevelFiveOn) {
  for (const Fault& fault : faults) {
    if (fault.step == kHandle) continue;
    const Check check = signature.order[fault.step].check;
    if (check != Check::any_empty && check != Check::outputs_empty) continue;
    BrokenCall call(op);
    fault.apply(call);
    for (int level : {1, 5}) {
      const LastLogLine line(level);
      ASSERT_EQ(invoke(call), MLUOP_STATUS_SUCCESS) << fault.what << ": " << last_message;
      if (op.writes_when_empty || signature.op.ends_with("WorkspaceSize")) continue;
      EXPECT_EQ(line.count(), level == 5 ? 1 : 0) << fault.what << ": " << line.text();
      EXPECT_EQ(line.has("): skipped"), level == 5) << fault.what << ": " << line.text();
    }
  }
}

// The functions of the design documents take tensors of any layout, as MLU-OPS does.
TEST_P(CNegative, LayoutsAreNotChecked) {
  const std::set<std::string_view> kDocumented = {
      "mluOpMoeDispatchForward", "mluOpGetIndicePairs", "mluOpDynamicPointToVoxelBackward",
      "mluOpDynamicScatterBackward", "mluOpMutualInformationBackward"};
  if (!kDocumented.contains(signature.op)) return;
  for (int i = 0; i < signature.arguments.count; ++i) {
    for (int layout : {static_cast<int>(MLUOP_LAYOUT_NCHW), static_cast<int>(MLUOP_LAYOUT_NTC), 77}) {
      BrokenCall call(op);
      call.parts[static_cast<std::size_t>(i)].layout = static_cast<mluOpTensorLayout_t>(layout);
      EXPECT_EQ(invoke(call), MLUOP_STATUS_SUCCESS) << signature.arguments[i].name << ": " << last_message;
    }
  }
}

TEST_P(CNegative, OptionalArgumentsAndDimensionsMayBeAbsent) {
  for (bool without_dimensions : {false, true}) {
    for (bool without_arguments : {false, true}) {
      BrokenCall call(op);
      for (int i = 0; i < signature.arguments.count; ++i) {
        BrokenCall::Part& part = call.parts[static_cast<std::size_t>(i)];
        part.without_optional_dim = without_dimensions;
        part.described = part.has_data = !(without_arguments && signature.arguments[i].optional);
      }
      EXPECT_EQ(invoke(call), MLUOP_STATUS_SUCCESS) << last_message;
    }
  }
}

// Tensors without elements need no memory, and calls with nothing to do need no workspace.
TEST_P(CNegative, EmptyTensorsNeedNoMemory) {
  for (int name = 0; name < signature.names.count; ++name) {
    const auto n = static_cast<std::size_t>(name);
    if (name < signature.scalars.count && !signature.scalars[name].values.empty()) continue;  // not a size
    if (is_pinned_by_data(name)) continue;
    const BrokenCall full(op);
    std::string sizes;
    for (std::size_t i = 0; i < full.example.sizes.size(); ++i) {
      const bool is_vector = i < full.example.vectors.size() && !full.example.vectors[i].empty();
      const std::int64_t value = is_vector ? full.example.vectors[i].back() : full.example.sizes[i];
      sizes +=
          std::string(signature.names[static_cast<int>(i)]) + "=" + std::to_string(i == n ? 0 : value) + " ";
    }
    BrokenCall call(op, sizes);
    if (breaks_rules_of({}, call) || has_scalar_out_of_range(call) || has_refused_empty(call)) continue;
    for (int i = 0; i < signature.arguments.count; ++i)
      if (call.elements(i) == 0 && !signature.arguments[i].by_pointer)
        call.parts[static_cast<std::size_t>(i)].has_data = false;
    const std::size_t required = call.workspace_size(op, handle);
    call.has_workspace = required > 0;
    EXPECT_EQ(call.invoke(op, handle, required), MLUOP_STATUS_SUCCESS)
        << signature.names[name] << " = 0: " << turnoutLastError();
  }
}

TEST_P(CNegative, OneFault) {
  std::set<int> caught;
  for (const Fault& fault : faults) {
    EXPECT_TRUE(holds(fault)) << fault.what;
    BrokenCall call(op);
    fault.apply(call);
    expect_end(fault, call, fault.what);
    caught.insert(fault.step);
  }
  for (int step = 0; step < signature.order.count; ++step) {
    const bool can_fail = signature.order[step].check != Check::workspace || workspace_size > 0;
    EXPECT_EQ(caught.count(step) > 0, can_fail) << "no fault ends at step " << step;
  }
  RecordProperty("cases", static_cast<int>(faults.size()));
}

TEST_P(CNegative, OfTwoFaultsTheEarlierStepWins) {
  if (kReducedShapes) GTEST_SKIP() << "two faults read no other memory than each of them";
  int cases = 0;
  for (const Fault& first : faults) {
    for (const Fault& second : faults) {
      if (first.step >= second.step || status_of(first) == status_of(second)) continue;
      BrokenCall call(op);
      first.apply(call);
      second.apply(call);
      if (!holds(first, call)) continue;
      expect_end(first, call, first.what + " and " + second.what);
      if (HasFatalFailure()) return;
      ++cases;
    }
  }
  const bool all_end_alike = std::all_of(faults.begin(), faults.end(), [&](const Fault& fault) {
    return status_of(fault) == status_of(faults[0]);
  });
  EXPECT_EQ(cases > 0, !all_end_alike);
  RecordProperty("cases", cases);
}

std::vector<const COperator*> all_operators() {
  std::vector<const COperator*> all;
  for (const COperator& op : core::c_operators()) all.push_back(&op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operators, CNegative, testing::ValuesIn(all_operators()), [](const auto& one) {
  return std::string(one.param->signature->op) + std::string(one.param->variant);
});

}  // namespace
}  // namespace turnout::test
