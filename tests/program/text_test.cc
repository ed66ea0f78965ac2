#include "src/program/text.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/program/kinds.h"
#include "tests/harness/folder.h"
#include "tests/harness/random.h"
#include "tests/program/random_program.h"

namespace axccl::program {
namespace {

// Every kind of operation. Part `second` has ids of its own, and no arguments.
const std::string kEveryKind = harness::Contents(AXCCL_TEST_SOURCE_DIR "/tests/fuzz/corpus/program/every_kind");

void Count(const Function& function, std::set<OpKind>* kinds) {
  for (const Operation& operation : function.operations) {
    kinds->insert(operation.kind);
    for (const Function& region : operation.regions) Count(region, kinds);
  }
}

TEST(TextTest, EveryKindComesBack) {
  const Result<Program> program = Parse(kEveryKind);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(Print(program.value()), kEveryKind);
  std::set<OpKind> kinds;
  for (const Part& part : program.value().parts) Count(part.function, &kinds);
  EXPECT_EQ(kinds.size(), Kinds().size());
}

// The example in docs/program-format.md is a program.
TEST(TextTest, TheDocumentedExampleIsAccepted) {
  const std::string page = harness::Contents(AXCCL_TEST_SOURCE_DIR "/docs/program-format.md"), fence = "```\n";
  const size_t begin = page.find(fence) + fence.size();
  const std::string example = page.substr(begin, page.find(fence, begin) - begin);
  const Result<Program> program = Parse(example);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program.value().parts.size(), 2u);
  EXPECT_EQ(Print(program.value()), example);
}

TEST(TextTest, ReadsEveryField) {
  const Program program = Parse(kEveryKind).value();
  EXPECT_EQ(program.ranks, 4);
  ASSERT_EQ(program.parts.size(), 2u);
  EXPECT_EQ(program.parts[1].ranks, (Ints{2, 3}));
  const Function& function = program.parts[0].function;
  EXPECT_EQ(function.name, "first-half");
  EXPECT_EQ(function.arguments[0], (Value{0, {DataType::kFloat32, {2, 3}}, true}));
  EXPECT_EQ(function.results, (std::vector<Id>{4294967295u, 66, 66}));
  const auto find = [&](Id id) {
    size_t i = 0;
    while (function.operations[i].id != id) ++i;
    return function.operations[i];
  };
  EXPECT_EQ(Get<Direction>(find(8), Attr::kDirection), Direction::kGe);
  EXPECT_EQ(Get<Ints>(find(43), Attr::kLow), (Ints{0, -1}));
  EXPECT_EQ(Get<Combine>(find(52), Attr::kFold), Combine::kProd);
  EXPECT_EQ(Get<Groups>(find(52), Attr::kGroups), (Groups{{0}, {1}}));
  EXPECT_EQ(Get<int64_t>(find(58), Attr::kChannel), INT64_MAX);
  EXPECT_EQ(Get<Literal>(find(39), Attr::kValue).bytes, std::vector<uint8_t>(8));
  EXPECT_EQ(Get<Literal>(find(62), Attr::kValue).bytes, std::vector<uint8_t>{1});
  EXPECT_EQ(find(50).operands, (std::vector<Id>{47, 31}));
  EXPECT_EQ(find(50).results[1], (Value{51, {DataType::kBool, {4, 3}}}));
  EXPECT_EQ(find(60).results.size(), 0u);
  EXPECT_EQ(find(63).regions[1].name, "else");
  EXPECT_EQ(find(63).regions[1].operations[0].id, 64u);
}

TEST(TextTest, RandomProgramsComeBackWithDistinctHashes) {
  harness::Random random(harness::Seed());
  std::set<std::string> texts, hashes;
  std::set<OpKind> kinds;
  for (int i = 0; i < 2000; ++i) {
    const Program program = RandomProgram(&random);
    const std::string text = Print(program);
    const Result<Program> parsed = Parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message() << ", seed " << harness::Seed() << "\n" << text;
    ASSERT_EQ(parsed.value(), program) << "seed " << harness::Seed() << "\n" << text;
    ASSERT_EQ(Print(parsed.value()), text) << "seed " << harness::Seed();
    texts.insert(text);
    hashes.insert(plan::ToString(HashOf(program)));
    for (const Part& part : program.parts) Count(part.function, &kinds);
  }
  EXPECT_EQ(hashes.size(), texts.size()) << "seed " << harness::Seed();
  EXPECT_EQ(kinds.size(), Kinds().size()) << "seed " << harness::Seed();
}

// A text with one byte changed or missing is refused, or is the text of another program.
TEST(TextTest, EveryByteCounts) {
  harness::Random random(harness::Seed());
  const std::string& text = kEveryKind;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string other = text;
    if (random.OneIn(2)) {
      other.erase(at, 1);
    } else {
      other[at] = random.Pick(std::string_view(" \n%=[],-0123456789abcdefx"));
    }
    const Result<Program> parsed = Parse(other);
    ASSERT_TRUE(!parsed.ok() || Print(parsed.value()) == other) << at << ", seed " << harness::Seed();
    ASSERT_FALSE(Parse(text.substr(0, at)).ok() && !text.substr(at).starts_with("part ")) << at;
  }
}

// ---- errors ----

constexpr const char* kExample =
    "axccl-program 1\n"
    "ranks 4\n"
    "part a on [0,1]\n"
    "  argument %0 f32[2] donated\n"
    "  argument %1 i1[]\n"
    "  %2 f32[2] = add %0 %0\n"
    "  %3 f32[2] = if %1\n"
    "  then\n"
    "    %4 f32[2] = constant value=[1,2]\n"
    "    return %4\n"
    "  else\n"
    "    return %2\n"
    "  %5 f32[2], %6 i1[] = all_reduce %3 %1 fold=add groups=[[0,1]] channel=1\n"
    "  %7 i1[2] = compare %3 %5 direction=LT\n"
    "  %8 f32[3] = pad %3 %1 low=[0] high=[-1] interior=[0]\n"
    "  %9 = send %8 pairs=[[0,2]] channel=1\n"
    "  return %5\n"
    "part b on [2,3]\n"
    "  return\n";

// The error of the example after a substitution: the text must hold `old` exactly once.
std::string ErrorOf(const std::string& old, const std::string& replacement) {
  std::string text = kExample;
  const size_t at = text.find(old);
  if (at == text.npos || text.find(old, at + 1) != text.npos) return "'" + old + "' is not there once";
  text.replace(at, old.size(), replacement);
  const Result<Program> program = Parse(text);
  return program.ok() ? "accepted" : std::string(program.status().message());
}

struct Wrong {
  const char* old;
  const char* replacement;
  const char* error;  // behind "program text, "
};

void Expect(std::initializer_list<Wrong> cases) {
  ASSERT_TRUE(Parse(kExample).ok()) << Parse(kExample).status().message();
  for (const Wrong& wrong : cases)
    EXPECT_EQ(ErrorOf(wrong.old, wrong.replacement), std::string("program text, ") + wrong.error)
        << wrong.old << " -> " << wrong.replacement;
}

TEST(TextErrorsTest, HeaderAndParts) {
  Expect({
      {"axccl-program 1", "axccl-program 2",
       "line 1 column 1: expected 'axccl-program 1\\n', found 'axccl-program 2\\n'"},
      {"ranks 4", "ranks 0", "line 2 column 7: expected a number from 1 to 1048576, found '0\\n'"},
      {"ranks 4", "ranks 1048577", "line 2 column 7: expected a number from 1 to 1048576, found '1048577\\n'"},
      {"ranks 4", "ranks 04", "line 2 column 7: expected a number from 1 to 1048576, found '04\\n'"},
      {"ranks 4\n", "ranks 4\n\n", "line 3 column 1: expected 'part ', found '\\n'"},
      {"part a", "part", "line 3 column 8: expected ' on ', found ' [0,1]\\n'"},
      {"part a", "part a/b",
       "line 3 column 6: expected the name of a part ([a-zA-Z0-9_.-], at most 64 characters), found 'a/b on [0,1]\\n'"},
      {"part b", "part a", "line 18 column 6: expected a name that no other part has, found 'a on [2,3]\\n'"},
      {"part a", "part xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
       "line 3 column 6: expected the name of a part ([a-zA-Z0-9_.-], at most 64 characters), found "
       "'xxxxxxxxxxxxxxxxxxxxxxxx'"},
      {"on [0,1]", "on [0,4]", "line 3 column 14: expected a number from 0 to 3, found '4]\\n'"},
      {"on [0,1]", "on [1,0]", "line 3 column 14: expected ranks in ascending order, found '0]\\n'"},
      {"on [0,1]", "on [1,1]", "line 3 column 14: expected ranks in ascending order, found '1]\\n'"},
      {"on [0,1]", "on []", "line 3 column 11: expected a list of ranks that is not empty, found '[]\\n'"},
      {"on [2,3]", "on [1,3]", "line 18 column 12: expected a rank that no other part has, found '1,3]\\n'"},
      {"on [0,1]", "on [0,1", "line 3 column 15: expected ']', found '\\n'"},
      {"on [0,1]", "on [0, 1]", "line 3 column 14: expected a number from 0 to 3, found ' 1]\\n'"},
      {"part b on [2,3]\n  return\n", "trailing", "line 18 column 1: expected 'part ', found 'trailing'"},
      {"  return\n", "  return\n\n", "line 20 column 1: expected 'part ', found '\\n'"},
      {"  return\n", "  return", "line 19 column 9: expected '\\n', found the end of the text"},
      {"  return\n", "", "line 19 column 1: expected '  ', found the end of the text"},
  });
}

TEST(TextErrorsTest, Lines) {
  Expect({
      {"  argument %0", "argument %0", "line 4 column 1: expected '  ', found 'argument %0 f32[2] donat'"},
      {"  %2 f32[2] = add", "    %2 f32[2] = add",
       "line 6 column 3: expected 'argument', '%' of an operation, or 'return', found '  %2 f32[2] = add %0 %0\\n'"},
      {"    %4", "  %4", "line 9 column 1: expected '    ', found '  %4 f32[2] = constant v'"},
      {"  argument %1 i1[]\n", "  argument %1 i1[] \n", "line 5 column 19: expected '\\n', found ' \\n'"},
      {"  argument %1 i1[]\n", "  argument %1 i1[]\r\n", "line 5 column 19: expected '\\n', found '?\\n'"},
      {"  return %5\n", "  argument %9 i1[]\n  return %5\n",
       "line 17 column 3: expected '%' of an operation, or 'return', found 'argument %9 i1[]\\n'"},
      {"  argument %1", "  operand %1",
       "line 5 column 3: expected 'argument', '%' of an operation, or 'return', found 'operand %1 i1[]\\n'"},
      {"  return %5", "  yield %5", "line 17 column 3: expected '%' of an operation, or 'return', found 'yield %5\\n'"},
      {"  argument %1 i1[]", "  argument %1", "line 5 column 14: expected ' ', found '\\n'"},
      {"donated", "given", "line 4 column 21: expected '\\n', found ' given\\n'"},
      {"  then\n", "  then\n    argument %20 f32[] donated\n", "line 9 column 23: expected '\\n', found ' donated\\n'"},
      {"  then\n", "  cond\n", "line 8 column 3: expected 'then', found 'cond\\n'"},
      {"  else\n", "  end\n", "line 11 column 3: expected 'else', found 'end\\n'"},
      {"  else\n    return %2\n", "", "line 11 column 3: expected 'else', found '%5 f32[2], %6 i1[] = all'"},
  });
}

TEST(TextErrorsTest, Types) {
  Expect({
      {"%1 i1[]", "%1 i4[]", "line 5 column 15: expected a type, such as f32[2,3] or i1[], found 'i4[]\\n'"},
      {"%1 i1[]", "%1 i1", "line 5 column 17: expected '[', found '\\n'"},
      {"%1 i1[]", "%1 complex64[]",
       "line 5 column 15: expected a type, such as f32[2,3] or i1[], found 'complex64[]\\n'"},
      {"%1 i1[]", "%1 i1[-1]", "line 5 column 18: expected a number from 0 to 9223372036854775807, found '-1]\\n'"},
      {"%1 i1[]", "%1 i1[?]", "line 5 column 18: expected a number from 0 to 9223372036854775807, found '?]\\n'"},
      {"%1 i1[]", "%1 i1[2,]", "line 5 column 20: expected a number from 0 to 9223372036854775807, found ']\\n'"},
      {"%1 i1[]", "%1 i1[9223372036854775808]",
       "line 5 column 18: expected a number from 0 to 9223372036854775807, found '9223372036854775808]\\n'"},
      {"%1 i1[]", "%1 i1[4294967296,4294967296]",
       "line 5 column 15: expected a type of less than 2^63 bytes, found 'i1[4294967296,4294967296'"},
      {"%1 i1[]", "%1 i1[1,1,1,1,1,1,1,1,1]",
       "line 5 column 15: expected a type of at most 8 dimensions, found 'i1[1,1,1,1,1,1,1,1,1]\\n'"},
  });
}

TEST(TextErrorsTest, Ids) {
  Expect({
      {"argument %1", "argument %0",
       "line 5 column 13: expected an id that the part does not have yet, found '0 i1[]\\n'"},
      {"%2 f32[2] =", "%1 f32[2] =",
       "line 6 column 4: expected an id that the part does not have yet, found '1 f32[2] = add %0 %0\\n'"},
      {"%4 f32[2] =", "%3 f32[2] =",
       "line 9 column 6: expected an id that the part does not have yet, found '3 f32[2] = constant valu'"},
      {"%6 i1[] =", "%5 i1[] =",
       "line 13 column 15: expected an id that the part does not have yet, found '5 i1[] = all_reduce %3 %'"},
      {"%9 = send", "%5 = send",
       "line 16 column 4: expected an id that the part does not have yet, found '5 = send %8 pairs=[[0,2]'"},
      {"%2 f32[2] =", "%4294967296 f32[2] =",
       "line 6 column 4: expected a number from 0 to 4294967295, found '4294967296 f32[2] = add '"},
      {"%2 f32[2] =", "%02 f32[2] =",
       "line 6 column 4: expected a number from 0 to 4294967295, found '02 f32[2] = add %0 %0\\n'"},
      {"add %0 %0", "add %0 %2",
       "line 6 column 23: expected a value that is defined above, in this function or around it, found '2\\n'"},
      {"add %0 %0", "add %0 %3",
       "line 6 column 23: expected a value that is defined above, in this function or around it, found '3\\n'"},
      {"add %0 %0", "add %0 %77",
       "line 6 column 23: expected a value that is defined above, in this function or around it, found '77\\n'"},
      {"return %2", "return %4",
       "line 12 column 13: expected a value that is defined above, in this function or around it, found '4\\n'"},
      {"return %4", "return %3",
       "line 10 column 13: expected a value that is defined above, in this function or around it, found '3\\n'"},
      {"compare %3 %5", "compare %3 %4",
       "line 14 column 26: expected a value that is defined above, in this function or around it, found '4 "
       "direction=LT\\n'"},
      {"return %5", "return %9",
       "line 17 column 11: expected a value that is defined above, in this function or around it, found '9\\n'"},
      {"  return\n", "  return %0\n",
       "line 19 column 11: expected a value that is defined above, in this function or around it, found '0\\n'"},
  });
}

TEST(TextErrorsTest, Operations) {
  Expect({
      {"= add", "= plus", "line 6 column 15: expected an operation, such as add or all_reduce, found 'plus %0 %0\\n'"},
      {"= add", "=", "line 6 column 15: expected an operation, such as add or all_reduce, found '%0 %0\\n'"},
      {"= add", "+ add", "line 6 column 12: expected ' = ', found ' + add %0 %0\\n'"},
      {"add %0 %0", "add %0", "line 6 column 21: expected 2 operands of add, not 1, found '\\n'"},
      {"add %0 %0", "add", "line 6 column 18: expected 2 operands of add, not 0, found '\\n'"},
      {"add %0 %0", "add %0 %0 %0", "line 6 column 27: expected 2 operands of add, not 3, found '\\n'"},
      {"add %0 %0", "add %0  %0", "line 6 column 21: expected 2 operands of add, not 1, found '  %0\\n'"},
      {"add %0 %0", "add %0, %0", "line 6 column 21: expected 2 operands of add, not 1, found ', %0\\n'"},
      {"all_reduce %3 %1", "all_reduce",
       "line 13 column 34: expected at least 1 operand of all_reduce, not 0, found ' fold=add groups=[[0,1]]'"},
      {"%5 f32[2], %6 i1[] = all_reduce %3 %1", "%5 f32[2] = all_reduce %3 %1",
       "line 13 column 15: expected 2 results of all_reduce, not 1, found 'all_reduce %3 %1 fold=ad'"},
      {"%2 f32[2] = add", "%2 = add", "line 6 column 8: expected 1 result of add, not 0, found 'add %0 %0\\n'"},
      {"%2 f32[2] = add", "%2 f32[2], %30 f32[2] = add",
       "line 6 column 27: expected 1 result of add, not 2, found 'add %0 %0\\n'"},
      {"%9 = send", "%9 i1[] = send",
       "line 16 column 13: expected 0 results of send, not 1, found 'send %8 pairs=[[0,2]] ch'"},
      {"= add %0 %0", "= dynamic_slice %0 %0 %0 %0 %0 %0 %0 %0 %0 %0 sizes=[]",
       "line 6 column 58: expected at most 9 operands of dynamic_slice, not 10, found ' sizes=[]\\n'"},
  });
}

TEST(TextErrorsTest, Attributes) {
  Expect({
      {" direction=LT", "", "line 14 column 27: expected ' direction=', found '\\n'"},
      {"direction=LT", "order=LT", "line 14 column 27: expected ' direction=', found ' order=LT\\n'"},
      {"direction=LT", "direction=lt", "line 14 column 38: expected EQ, NE, GE, GT, LE or LT, found 'lt\\n'"},
      {"direction=LT", "direction=LT dims=[]", "line 14 column 40: expected '\\n', found ' dims=[]\\n'"},
      {"fold=add", "fold=sum",
       "line 13 column 46: expected add, mul, max, min, and, or, or xor, found 'sum groups=[[0,1]] chann'"},
      {"fold=add groups=[[0,1]]", "groups=[[0,1]] fold=add",
       "line 13 column 40: expected ' fold=', found ' groups=[[0,1]] fold=add'"},
      {"groups=[[0,1]]", "groups=[[0,4]]",
       "line 13 column 61: expected a number from 0 to 3, found '4]] channel=1\\n'"},
      {"groups=[[0,1]]", "groups=[]",
       "line 13 column 57: expected a list of groups that is not empty, found '[] channel=1\\n'"},
      {"groups=[[0,1]]", "groups=[[]]",
       "line 13 column 58: expected a list of ranks that is not empty, found '[]] channel=1\\n'"},
      {"groups=[[0,1]]", "groups=[0,1]", "line 13 column 58: expected '[', found '0,1] channel=1\\n'"},
      {"groups=[[0,1]]", "groups=dense", "line 13 column 57: expected '[', found 'dense channel=1\\n'"},
      {"pairs=[[0,2]] channel=1", "pairs=[[0,2,1]] channel=1",
       "line 16 column 23: expected a pair of ranks, [source,target], found '[0,2,1]] channel=1\\n'"},
      {"pairs=[[0,2]] channel=1", "pairs=[[0,2]] channel=-1",
       "line 16 column 38: expected a number from 0 to 9223372036854775807, found '-1\\n'"},
      {"pairs=[[0,2]] channel=1", "pairs=[[0,2]] channel=9223372036854775808",
       "line 16 column 38: expected a number from 0 to 9223372036854775807, found '9223372036854775808\\n'"},
      {"low=[0]", "low=[-0]",
       "line 15 column 31: expected a number from 1 to 9223372036854775807, found '0] high=[-1] interior=[0'"},
      {"interior=[0]", "interior=[-1]",
       "line 15 column 53: expected a number from 0 to 9223372036854775807, found '-1]\\n'"},
      {"low=[0]", "low=0", "line 15 column 29: expected '[', found '0 high=[-1] interior=[0]'"},
      {"high=[-1]", "high=[-9223372036854775808]",
       "line 15 column 40: expected a number from 1 to 9223372036854775807, found '9223372036854775808] int'"},
  });
}

TEST(TextErrorsTest, Constants) {
  Expect({
      {"value=[1,2]", "value=", "line 9 column 32: expected an element of type f32 in its shortest form, found '\\n'"},
      {"value=[1,2]", "value=1.0",
       "line 9 column 32: expected an element of type f32 in its shortest form, found '1.0\\n'"},
      {"value=[1,2]", "value=[1,2,3]", "line 9 column 32: expected one element, or a list of 2, found '[1,2,3]\\n'"},
      {"value=[1,2]", "value=[1]", "line 9 column 32: expected one element, or a list of 2, found '[1]\\n'"},
      {"value=[1,2]", "value=[1,true]",
       "line 9 column 35: expected an element of type f32 in its shortest form, found 'true]\\n'"},
      {"value=[1,2]", "value=[[1,2]]",
       "line 9 column 33: expected an element of type f32 in its shortest form, found '[1,2]]\\n'"},
      {"value=[1,2]", "value=[1,2", "line 9 column 36: expected ']', found '\\n'"},
      {"value=[1,2]", "value=[1, 2]",
       "line 9 column 35: expected an element of type f32 in its shortest form, found ' 2]\\n'"},
      {"%4 f32[2] = constant value=[1,2]", "%4 f32[1] = constant value=[1]",
       "line 9 column 32: expected one element without brackets, found '[1]\\n'"},
      {"%4 f32[2] = constant value=[1,2]", "%4 i8[] = constant value=128",
       "line 9 column 30: expected an element of type i8 in its shortest form, found '128\\n'"},
      {"%4 f32[2] = constant value=[1,2]", "%4 i1[] = constant value=1",
       "line 9 column 30: expected an element of type i1 in its shortest form, found '1\\n'"},
  });
}

// Regions within regions: 16 are accepted, 17 are not.
TEST(TextErrorsTest, NestingIsBounded) {
  const auto nested = [](int regions) {
    std::string text = "axccl-program 1\nranks 1\npart a on [0]\n  argument %0 i1[]\n", end = "  return\n",
                indent = "  ";
    for (int i = 1; i <= regions; ++i) {
      text += indent + "%" + std::to_string(i) + " = if %0\n" + indent + "then\n";
      end = indent + "  return\n" + indent + "else\n" + indent + "  return\n" + end;
      indent += "  ";
    }
    return text + end;
  };
  const Result<Program> deep = Parse(nested(kMaxNesting));
  ASSERT_TRUE(deep.ok()) << deep.status().message();
  EXPECT_EQ(Parse(nested(kMaxNesting + 1)).status().message(),
            "program text, line 38 column 1: expected at most 16 regions within each other, found '                    "
            "    '");
}

}  // namespace
}  // namespace axccl::program
