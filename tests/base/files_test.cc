// Small files are read and replaced as a whole, or not at all.
#include "src/base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/harness/folder.h"

namespace axccl {
namespace {

using harness::Contents;
using harness::Folder;

int Entries(const Folder& folder) {
  const std::filesystem::directory_iterator entries(folder.path());
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

TEST(FilesTest, AreReadUpToALimit) {
  const Folder folder;
  const std::string path = folder.Path("file"), text(10000, 'x');
  ASSERT_TRUE(WriteWholeFile(path, text).ok());
  const Result<std::string> all = ReadWholeFile(path, text.size());
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all.value(), text);
  const Status status = ReadWholeFile(path, text.size() - 1).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with(path + ": larger than 9999 bytes")) << status.message();
  EXPECT_EQ(ReadWholeFile(folder.Path("none"), 1).status().code(), Code::kSystemError);
  EXPECT_EQ(ReadWholeFile(folder.path(), 1).status().code(), Code::kSystemError) << "a folder";
}

TEST(FilesTest, AreReplacedAsAWholeWithTheirFolders) {
  const Folder folder;
  const std::string path = folder.Path("a/b/file");
  ASSERT_TRUE(ReplaceFile(path, "long\n").ok());
  EXPECT_EQ(Contents(path), "long\n");
  std::ifstream before(path);
  ASSERT_TRUE(ReplaceFile(path, "x").ok());
  EXPECT_EQ(Contents(path), "x");
  std::string line;
  EXPECT_TRUE(std::getline(before, line) && line == "long") << "an open file keeps the old contents";
}

TEST(FilesTest, AFailedReplacementLeavesNothingBehind) {
  const Folder folder;
  ASSERT_EQ(mkdir(folder.Path("taken").c_str(), 0700), 0);
  std::ofstream(folder.Path("plain")) << "kept";
  const Status taken = ReplaceFile(folder.Path("taken"), "text"),
               below = ReplaceFile(folder.Path("plain/file"), "text");
  EXPECT_EQ(taken.code(), Code::kSystemError);
  EXPECT_NE(taken.message().find("rename("), std::string_view::npos) << taken.message();
  EXPECT_EQ(below.code(), Code::kSystemError);
  EXPECT_EQ(Contents(folder.Path("plain")), "kept");
  EXPECT_EQ(Entries(folder), 2);
}

// The error names the cause, not only that the folder is missing. No process may make a folder in /sys.
TEST(FilesTest, AFailureToMakeTheirFoldersIsReported) {
  const Status status = ReplaceFile("/sys/axccl/of/this/test/file", "text");
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_NE(status.message().find("mkdir(/sys/axccl): "), std::string_view::npos) << status.message();
}

TEST(FilesTest, AreNamedInErrors) {
  const Status status = InFile("/some/file", MakeStatus(Code::kInvalidArgument, "line 1: found 'x'"));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "/some/file: line 1: found 'x'");
}

}  // namespace
}  // namespace axccl
