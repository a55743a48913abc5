// Part of each test program in the copy that tools/mutate.py builds. After each test it appends a line to the
// file TURNOUT_REACHED_TESTS: the test's name, its CPU time in seconds, and "number:kind" for each mutant
// that the test, or a process that it started, evaluated.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "mutant.h"

namespace turnout_mutants {
namespace {

class Listener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    std::memset(reached, 0, sizeof(reached));
    start_ = std::clock();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    add_children();
    std::FILE* file = std::fopen(std::getenv("TURNOUT_REACHED_TESTS"), "a");
    if (file == nullptr) return;
    std::fprintf(file, "%s.%s %.4f", test.test_suite_name(), test.name(),
                 static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC);
    for (int i = 0; i < kMost; ++i)
      if (reached[i] != 0) std::fprintf(file, " %d:%d", i, reached[i]);
    std::fputc('\n', file);
    std::fclose(file);
  }
  // Adds what processes that the test started have evaluated; they wrote it when they ended.
  void add_children() {
    for (const auto& entry : std::filesystem::directory_iterator(std::getenv("TURNOUT_REACHED"))) {
      std::ifstream file(entry.path(), std::ios::binary);
      for (int i = 0; i < kMost && file; ++i)
        if (const int kind = file.get(); kind > 0) reached[i] = static_cast<unsigned char>(kind);
      std::filesystem::remove(entry.path());
    }
  }
  std::clock_t start_ = 0;
};

const bool is_listening = [] {
  if (std::getenv("TURNOUT_REACHED_TESTS") != nullptr)
    testing::UnitTest::GetInstance()->listeners().Append(new Listener);
  return true;
}();

}  // namespace
}  // namespace turnout_mutants
