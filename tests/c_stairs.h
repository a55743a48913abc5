// A call with everything wrong, put right one thing at a time: the order of checks, written out by hand.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "c_descriptor.h"

namespace turnout::test {

// Each stair is how the call ends until it is repaired. Call has run(handle).
template <class Call>
class Stairs {
 public:
  using Repair = std::function<void(Call&)>;
  explicit Stairs(std::string function) : function_(std::move(function)) {}

  // sentence: how it begins, without the name of the function.
  void bad(const std::string& sentence, Repair repair) { stairs_.push_back({kBad, sentence, repair}); }
  void unsupported(const std::string& sentence, Repair repair) {
    stairs_.push_back({kUnsupported, sentence, repair});
  }
  void succeeds(Repair repair = [](Call&) {}) { stairs_.push_back({kOk, "", repair}); }

  void climb() const {
    mluOpHandle_t handle = nullptr;
    ASSERT_EQ(mluOpCreate(&handle), kOk);
    Call call;
    for (const Stair& stair : stairs_) {
      ASSERT_EQ(call.run(handle), stair.status) << stair.sentence << " / " << turnoutLastError();
      const std::string said = turnoutLastError();
      const std::string expected = stair.status == kOk ? "" : function_ + ": " + stair.sentence;
      EXPECT_EQ(expected.empty() ? said : said.substr(0, expected.size()), expected) << said;
      stair.repair(call);
    }
    EXPECT_EQ(mluOpDestroy(handle), kOk);
  }

 private:
  struct Stair {
    mluOpStatus_t status;
    std::string sentence;
    Repair repair;
  };
  std::string function_;
  std::vector<Stair> stairs_;
};

}  // namespace turnout::test
