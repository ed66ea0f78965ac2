#include "src/base/command_line.h"

#include <gtest/gtest.h>

#include <map>

namespace axccl::command_line {
namespace {

constexpr Option kOptions[] = {{"--ranks"}, {"--rounds", true, 'n', 7}, {"--root"},
                               {"--dim"},   {"--topology", false},      {"", true, 'q'}};

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const Result<Words> words = Split(arguments, kOptions);
  return words.ok() ? "" : std::string(words.status().message());
}

TEST(CommandLine, ReadsEveryForm) {
  const std::vector<std::vector<std::string>> forms = {{"--rounds", "3"}, {"--rounds=3"}, {"-n", "3"}, {"-n3"}};
  for (const std::vector<std::string>& form : forms) {
    SCOPED_TRACE(form[0]);
    const Words words = Split(form, kOptions).value();
    ASSERT_EQ(words.words.size(), 1u);
    EXPECT_EQ(words.words[0].as, "-n (--rounds)");
    EXPECT_EQ(words.words[0].option.number, 7);
    EXPECT_EQ(words.words[0].text, "3");
  }
}

TEST(CommandLine, ValuesMayBeginWithADashOrBeEmpty) {
  EXPECT_EQ(Split({"--dim", "-1"}, kOptions).value().words[0].text, "-1");
  EXPECT_EQ(Split({"--dim="}, kOptions).value().words[0].text, "");
  EXPECT_EQ(Split({"--dim=a=b"}, kOptions).value().words[0].text, "a=b");
  EXPECT_EQ(Split({"--dim", ""}, kOptions).value().words[0].text, "");
}

TEST(CommandLine, OperandsAreWhatIsNoOption) {
  const Words words = Split({"run", "-", "--topology", "", "--", "--ranks", "-h"}, kOptions).value();
  const std::vector<std::string> texts = {"run", "-", "", "", "--ranks", "-h"};
  ASSERT_EQ(words.words.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(words.words[i].text, texts[i]) << i;
    EXPECT_EQ(words.words[i].is_option(), i == 2) << i;
  }
  EXPECT_FALSE(words.help);
}

TEST(CommandLine, HelpAndVersionAreEverywhere) {
  EXPECT_TRUE(Split({"-h"}, {}).value().help);
  EXPECT_TRUE(Split({"run", "--help", "--wrong"}, {}).value().help);
  EXPECT_TRUE(Split({"--version"}, {}).value().version);
  EXPECT_FALSE(Split({"--version"}, {}).value().help);
  EXPECT_FALSE(Split({"--ranks", "--help"}, kOptions).value().help) << "it is the value of --ranks";
}

TEST(CommandLine, WrongOptionsNameTheNearest) {
  const std::map<std::string, std::string> expected = {
      {"--rank", "--rank: did you mean --ranks?"},
      {"--rank=2", "--rank: did you mean --ranks?"},
      {"--rnaks", "--rnaks: did you mean --ranks?"},
      {"-ranks", "-ranks: did you mean --ranks?"},
      {"--topo", "--topo: did you mean --topology?"},
      {"--Rounds", "--Rounds: did you mean --rounds?"},
      {"--hlp", "--hlp: did you mean --help?"},
      {"--versoin", "--versoin: did you mean --version?"},
      {"--colour", "--colour: no such option; --help lists them"},
      {"-x", "-x: no such option; --help lists them"},
      {"-h2", "-h2: no such option; --help lists them"},
      {"--topology=3", "--topology=3: --topology takes no value"},
      {"--help=3", "--help=3: --help takes no value"},
      {"--ranks", "--ranks needs a value"},
      {"-n", "-n (--rounds) needs a value"},
      {"-q", "-q needs a value"},
  };
  for (const auto& [argument, error] : expected) EXPECT_EQ(ErrorOf({argument}), error);
}

TEST(CommandLine, VersionNamesTheProgramWithoutItsFolder) {
  EXPECT_EQ(VersionText("/usr/bin/axccl-info"), VersionText("axccl-info"));
  EXPECT_EQ(VersionText("axccl-info").find("axccl-info (AxCCL) "), 0u);
}

}  // namespace
}  // namespace axccl::command_line
