// Tests CPU quotas and memory limits of containers, read from files as Linux presents them.
#include "runtime/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "runtime/available_memory.h"
#include "runtime/pages.h"

namespace turnout::core {
namespace {

class LinuxFiles : public testing::Test {
 protected:
  void SetUp() override {
    root = testing::TempDir() + "turnout_linux_files_" +
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root);
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void mount_v2(const std::string& of = "/") const {
    write("/proc/self/mountinfo",
          "31 23 0:28 / /proc rw,relatime - proc proc rw\n"
          "41 31 0:38 " +
              of + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  std::string root;
};
using CpuQuota = LinuxFiles;
using AvailableMemory = LinuxFiles;

TEST_F(CpuQuota, IsNoneWithoutFiles) { EXPECT_EQ(cpu_quota(root), 0); }

TEST_F(CpuQuota, OfTheOwnGroupIsRoundedUp) {
  mount_v2();
  write("/proc/self/cgroup", "0::/job\n");
  for (const auto& [text, cpus] : {std::pair{"150000 100000\n", 2},
                                   {"200000 100000\n", 2},
                                   {"1000 100000\n", 1},
                                   {"max 100000\n", 0},
                                   {"400000 50000\n", 8},
                                   {"", 0},
                                   {"x y\n", 0},
                                   {"100000\n", 0},
                                   {"100000 0\n", 0},
                                   {"-1 100000\n", 0}}) {
    write("/sys/fs/cgroup/job/cpu.max", text);
    EXPECT_EQ(cpu_quota(root), cpus) << text;
  }
}

TEST_F(CpuQuota, OfNestedGroupsIsTheLeast) {
  mount_v2();
  write("/proc/self/cgroup", "0::/kubepods/pod7/container\n");
  write("/sys/fs/cgroup/kubepods/pod7/container/cpu.max", "800000 100000\n");
  EXPECT_EQ(cpu_quota(root), 8);
  write("/sys/fs/cgroup/kubepods/pod7/cpu.max", "300000 100000\n");
  EXPECT_EQ(cpu_quota(root), 3);
  write("/sys/fs/cgroup/kubepods/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root), 3);
  write("/sys/fs/cgroup/kubepods/pod8/cpu.max", "100000 100000\n");  // another pod's
  EXPECT_EQ(cpu_quota(root), 3);
}

// A container without its own cgroup namespace sees the host's path, and its own group as the root.
TEST_F(CpuQuota, OfAContainerThatSeesThePathOfItsHost) {
  mount_v2("/docker/4f1");
  write("/proc/self/cgroup", "0::/docker/4f1/worker\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(root), 4);
  write("/sys/fs/cgroup/worker/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(root), 2);
  write("/proc/self/cgroup", "0::/elsewhere/4f1\n");  // no such folder here
  EXPECT_EQ(cpu_quota(root), 4);
}

TEST_F(CpuQuota, OfVersionOne) {
  write("/proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("/proc/self/cgroup", "5:cpuset:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root), 0);
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cpu_quota(root), 3);
}

TEST_F(AvailableMemory, IsUnlimitedWithoutFiles) {
  EXPECT_EQ(available_memory(root), std::numeric_limits<std::size_t>::max());
}

TEST_F(AvailableMemory, OfTheMachineIncludesSwap) {
  write("/proc/meminfo", "MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB\nSwapFree: 500 kB\n");
  EXPECT_EQ(available_memory(root), 3500u * 1024);
}

TEST_F(AvailableMemory, OfGroupsIsTheLeastThatIsLeft) {
  mount_v2();
  write("/proc/meminfo", "MemAvailable: 3000 kB\n");
  write("/proc/self/cgroup", "0::/pod/container\n");
  write("/sys/fs/cgroup/pod/container/memory.max", "max\n");
  EXPECT_EQ(available_memory(root), 3000u * 1024);
  write("/sys/fs/cgroup/pod/memory.max", "2000000\n");
  write("/sys/fs/cgroup/pod/memory.current", "1500000\n");
  write("/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 200000\nactive_file 5\n");
  EXPECT_EQ(available_memory(root), 700000u);
  write("/sys/fs/cgroup/pod/memory.current", "9000000\n");
  EXPECT_EQ(available_memory(root), 0u);
}

TEST_F(AvailableMemory, OfVersionOne) {
  write("/proc/self/mountinfo", "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("/proc/self/cgroup", "4:memory:/job\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "600000\n");
  write("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 50000\n");
  EXPECT_EQ(available_memory(root), 450000u);
}

// Linux would grant these pages, and kill the process that fills them.
TEST(Pages, MoreThanTheMachineHasAreRefused) {
  const std::size_t available = available_memory();
  if (available > std::size_t{1} << 46) GTEST_SKIP() << "the available memory is unknown";
  EXPECT_FALSE(can_provide(2 * available + (std::size_t{1} << 30)));
  EXPECT_EQ(map_pages(in_whole_pages(2 * available + (std::size_t{1} << 30))), nullptr);
  EXPECT_TRUE(can_provide(1 << 20));
}

}  // namespace
}  // namespace turnout::core
