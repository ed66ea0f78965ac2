// Every constraint on a single operation: what is accepted, and what is refused with which words.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/program/check.h"
#include "src/program/kinds.h"
#include "src/program/text.h"
#include "tests/harness/folder.h"
#include "tests/harness/random.h"
#include "tests/program/random_program.h"

namespace axccl::program {
namespace {

// What CheckTypes and CheckFrees say of a text: "" if nothing.
std::string ErrorOf(const std::string& text) {
  const Result<Program> program = Parse(text);
  if (!program.ok()) return "does not parse: " + std::string(program.status().message());
  const Status types = CheckTypes(program.value());
  return std::string(types.ok() ? CheckFrees(program.value()).message() : types.message());
}

// A program of ranks 0 to 3 whose part has ranks 0 and 1, these types as arguments %0, %1, ..., and this operation.
std::string ProgramOf(const std::string& arguments, const std::string& operation) {
  std::string text = "axccl-program 1\nranks 4\npart main on [0,1]\n";
  std::istringstream types(arguments);
  int id = 0;
  for (std::string type; types >> type; ++id) text += "  argument %" + std::to_string(id) + " " + type + "\n";
  return text + "  %20 " + operation + "\n  return\npart other on [2,3]\n  return\n";
}

struct Case {
  const char* arguments;  // types
  const char* operation;
  const char* error;  // a constraint "(C1)" or other words, "": accepted
};

void Expect(const std::vector<Case>& cases) {
  std::set<std::string> accepted, refused;
  for (const Case& test : cases) {
    const std::string error = ErrorOf(ProgramOf(test.arguments, test.operation));
    std::istringstream words(std::string(test.operation).substr(std::string(test.operation).find("= ") + 2));
    std::string kind;
    words >> kind;
    if (test.error[0] == '\0') {
      EXPECT_EQ(error, "") << test.operation;
      accepted.insert(kind);
      continue;
    }
    const bool is_constraint = test.error[0] == '(';
    const std::string wanted = is_constraint ? "[StableHLO " + kind + " " + test.error + "]" : test.error;
    EXPECT_NE(error.find(wanted), error.npos) << test.operation << "\n  " << wanted << "\n  " << error;
    EXPECT_EQ(error.find("part main, %20 " + kind + ": "), 0u) << error;
    refused.insert(kind);
  }
  EXPECT_EQ(accepted, refused);
}

// ---- element by element ----

TEST(CheckTypesTest, OneTypeForAll) {
  const char *kF = "f64 f32 bf16 f16", *kS = "i8 i16 i32 i64", *kU = "u8 u16 u32 u64", *kB = "i1";
  struct Row {
    const char* kind;
    int operands;
    std::vector<const char*> good, bad;
  };
  std::vector<Row> rows;
  for (const char* kind : {"cosine", "exponential", "floor", "log", "rsqrt", "sine", "sqrt", "tanh"})
    rows.push_back({kind, 1, {kF}, {kS, kU, kB}});
  for (const char* kind : {"abs", "sign"}) rows.push_back({kind, 1, {kF, kS}, {kU, kB}});
  rows.push_back({"negate", 1, {kF, kS, kU}, {kB}});
  for (const char* kind : {"divide", "power", "remainder", "subtract"}) rows.push_back({kind, 2, {kF, kS, kU}, {kB}});
  for (const char* kind : {"add", "multiply", "maximum", "minimum"}) rows.push_back({kind, 2, {kF, kS, kU, kB}, {}});
  for (const char* kind : {"and", "or", "xor"}) rows.push_back({kind, 2, {kS, kU, kB}, {kF}});
  rows.push_back({"not", 1, {kS, kU, kB}, {kF}});
  rows.push_back({"copy", 1, {kF, kS, kU, kB}, {}});
  for (const Row& row : rows) {
    const std::string operation = std::string(" = ") + row.kind + (row.operands == 1 ? " %0" : " %0 %1");
    const auto error_of = [&](const std::string& a, const std::string& b, const std::string& result) {
      return ErrorOf(ProgramOf(a + " " + b, result + operation));
    };
    const auto for_each = [](const std::vector<const char*>& sets, const auto& visit) {
      for (const char* set : sets) {
        std::istringstream types(set);
        for (std::string type; types >> type;) visit(type);
      }
    };
    for_each(row.good, [&](const std::string& type) {
      const std::string good = type + "[2,3]";
      EXPECT_EQ(error_of(good, good, good), "");
      const std::string kind = std::string(row.kind) + " (C1)";
      const bool is_copy = row.kind == std::string("copy");
      for (const std::string& other :
           {type + "[2]", type + "[3,2]", std::string(type == "f32" ? "f64" : "f32") + "[2,3]"}) {
        EXPECT_NE(error_of(good, good, other).find(is_copy ? "copy: result %20 has type" : kind), std::string::npos);
        if (row.operands == 2) {
          EXPECT_NE(error_of(good, other, good), "") << row.kind;
        }
      }
    });
    for_each(row.bad, [&](const std::string& type) {
      const std::string bad = type + "[2]";
      EXPECT_NE(error_of(bad, bad, bad).find(std::string(row.kind) + " (I1)]"), std::string::npos) << row.kind << bad;
    });
  }
}

TEST(CheckTypesTest, OtherElementwise) {
  Expect({
      {"f32[2] f32[2] f32[2]", "f32[2] = clamp %0 %1 %2", ""},
      {"f32[] f32[2] f32[]", "f32[2] = clamp %0 %1 %2", ""},
      {"f32[1] f32[2] f32[]", "f32[2] = clamp %0 %1 %2", "(C1)"},
      {"f32[] f32[2] f32[3]", "f32[2] = clamp %0 %1 %2", "(C2)"},
      {"f64[] f32[2] f32[]", "f32[2] = clamp %0 %1 %2", "(C3)"},
      {"f32[] f32[2] i32[2]", "f32[2] = clamp %0 %1 %2", "(C3)"},
      {"f32[] f32[2] f32[]", "f32[3] = clamp %0 %1 %2", "(C4)"},
      {"f32[] f32[2] f32[]", "f64[2] = clamp %0 %1 %2", "(C4)"},
      {"f32[2] f32[2]", "i1[2] = compare %0 %1 direction=LT", ""},
      {"i1[] i1[]", "i1[] = compare %0 %1 direction=NE", ""},
      {"f32[2] f64[2]", "i1[2] = compare %0 %1 direction=LT", "(C1)"},
      {"f32[2] f32[3]", "i1[2] = compare %0 %1 direction=LT", "(C2)"},
      {"f32[2] f32[2]", "i1[3] = compare %0 %1 direction=LT", "(C2)"},
      {"f32[2] f32[2]", "f32[2] = compare %0 %1 direction=LT", "result %20 has type f32[2], expected i1[2]"},
      {"f32[2]", "i1[2] = is_finite %0", ""},
      {"i32[2]", "i1[2] = is_finite %0", "(I1)"},
      {"f32[2]", "i1[3] = is_finite %0", "(C1)"},
      {"f32[2]", "f32[2] = is_finite %0", "(C1)"},
      {"f32[2]", "i1[2] = convert %0", ""},
      {"f32[2]", "f64[3] = convert %0", "(C1)"},
      {"i1[2] f32[2] f32[2]", "f32[2] = select %0 %1 %2", ""},
      {"i1[] f32[2] f32[2]", "f32[2] = select %0 %1 %2", ""},
      {"i8[2] f32[2] f32[2]", "f32[2] = select %0 %1 %2", "(I1)"},
      {"i1[1] f32[2] f32[2]", "f32[2] = select %0 %1 %2", "(C1)"},
      {"i1[2] f32[2] f64[2]", "f32[2] = select %0 %1 %2", "(C2)"},
      {"i1[2] f32[2] f32[2]", "f64[2] = select %0 %1 %2", "(C2)"},
  });
}

// ---- shapes ----

TEST(CheckTypesTest, Shapes) {
  Expect({
      {"f32[2,1]", "f32[5,2,4] = broadcast_in_dim %0 dims=[1,2]", ""},
      {"f32[]", "f32[5] = broadcast_in_dim %0 dims=[]", ""},
      {"f32[2]", "f64[2] = broadcast_in_dim %0 dims=[0]", "(C1)"},
      {"f32[2]", "f32[2] = broadcast_in_dim %0 dims=[]", "(C2)"},
      {"f32[2]", "f32[2] = broadcast_in_dim %0 dims=[1]", "(C3)"},
      {"f32[2]", "f32[2] = broadcast_in_dim %0 dims=[9223372036854775807]", "(C3)"},
      {"f32[2,2]", "f32[2,2] = broadcast_in_dim %0 dims=[1,1]", "(C4)"},
      {"f32[2]", "f32[3] = broadcast_in_dim %0 dims=[0]", "(C5)"},
      {"f32[2,3] f32[2,1]", "f32[2,4] = concatenate %0 %1 dim=1", ""},
      {"f32[2,3]", "f32[2,3] = concatenate %0 dim=0", ""},
      {"f32[2,3] f64[2,1]", "f32[2,4] = concatenate %0 %1 dim=1", "(C1)"},
      {"f32[2,3] f32[3,1]", "f32[2,4] = concatenate %0 %1 dim=1", "(C2)"},
      {"f32[2,3] f32[2]", "f32[2,4] = concatenate %0 %1 dim=1", "(C2)"},
      {"f32[2] f32[2]", "f32[4] = concatenate %0 %1 dim=1", "(C4)"},
      {"f32[2] f32[2]", "f64[4] = concatenate %0 %1 dim=0", "(C5)"},
      {"f32[2] f32[2]", "f32[5] = concatenate %0 %1 dim=0", "(C6)"},
      {"i8[9223372036854775807] i8[2]", "i8[1] = concatenate %0 %1 dim=0", "(C6)"},
      {"", "i32[3] = iota dim=0", ""},
      {"", "f32[3,2] = iota dim=1", ""},
      {"", "i1[3] = iota dim=0", "expected integers or floats"},
      {"", "i32[3] = iota dim=1", "(C1)"},
      {"", "i32[] = iota dim=0", "(C1)"},
      {"f32[2,3] f32[]", "f32[3,6] = pad %0 %1 low=[0,-1] high=[1,2] interior=[0,1]", ""},
      {"f32[0] f32[]", "f32[3] = pad %0 %1 low=[1] high=[2] interior=[7]", ""},
      {"f32[2] f64[]", "f32[2] = pad %0 %1 low=[0] high=[0] interior=[0]", "(C1)"},
      {"f32[2] f32[1]", "f32[2] = pad %0 %1 low=[0] high=[0] interior=[0]", "(C1)"},
      {"f32[2] f32[]", "f64[2] = pad %0 %1 low=[0] high=[0] interior=[0]", "(C1)"},
      {"f32[2] f32[]", "f32[2] = pad %0 %1 low=[0] high=[0,0] interior=[0]", "(C2)"},
      {"f32[2] f32[]", "f32[2] = pad %0 %1 low=[] high=[0] interior=[0]", "(C2)"},
      {"f32[2] f32[]", "f32[2] = pad %0 %1 low=[0] high=[0] interior=[1]", "(C4)"},
      {"f32[2] f32[]", "f32[0] = pad %0 %1 low=[-3] high=[0] interior=[0]", "(C4)"},
      {"f32[2] f32[]", "f32[1] = pad %0 %1 low=[9223372036854775807] high=[9223372036854775807] interior=[0]", "(C4)"},
      {"f32[2,3] f32[]", "f32[3] = reduce %0 %1 fold=add dims=[0]", ""},
      {"f32[2,3] f32[]", "f32[] = reduce %0 %1 fold=max dims=[1,0]", ""},
      {"i1[2] i1[]", "i1[] = reduce %0 %1 fold=and dims=[0]", ""},
      {"f32[2] f32[1]", "f32[] = reduce %0 %1 fold=add dims=[0]", "(C2)"},
      {"f32[2] f64[]", "f32[] = reduce %0 %1 fold=add dims=[0]", "(C2)"},
      {"f32[2] f32[]", "f32[] = reduce %0 %1 fold=add dims=[1]", "(C4)"},
      {"f32[2,2] f32[]", "f32[] = reduce %0 %1 fold=add dims=[0,0]", "(C5)"},
      {"f32[2] f32[]", "f32[] = reduce %0 %1 fold=xor dims=[0]", "(C6)"},
      {"f32[2,3] f32[]", "f32[2] = reduce %0 %1 fold=add dims=[0]", "(C7)"},
      {"f32[2] f32[]", "f64[] = reduce %0 %1 fold=add dims=[0]", "(C8)"},
      {"f32[2,3]", "f32[3,1,2] = reshape %0", ""},
      {"f32[0,9]", "f32[7,0] = reshape %0", ""},
      {"f32[2,3]", "f64[6] = reshape %0", "(C1)"},
      {"f32[2,3]", "f32[7] = reshape %0", "(C2)"},
      {"f32[2,3]", "f32[2,3] = reverse %0 dims=[1]", ""},
      {"f32[2,3]", "f32[3,2] = reverse %0 dims=[1]", "(C1)"},
      {"f32[2,3]", "f32[2,3] = reverse %0 dims=[1,1]", "(C2)"},
      {"f32[2,3]", "f32[2,3] = reverse %0 dims=[2]", "(C3)"},
      {"f32[5]", "f32[2] = slice %0 starts=[1] limits=[5] strides=[2]", ""},
      {"f32[5]", "f32[0] = slice %0 starts=[5] limits=[5] strides=[1]", ""},
      {"f32[5]", "f64[2] = slice %0 starts=[1] limits=[5] strides=[2]", "(C1)"},
      {"f32[5]", "f32[2] = slice %0 starts=[1,0] limits=[5] strides=[2]", "(C2)"},
      {"f32[5]", "f32[2] = slice %0 starts=[1] limits=[5] strides=[]", "(C2)"},
      {"f32[5]", "f32[2] = slice %0 starts=[3] limits=[2] strides=[1]", "(C3)"},
      {"f32[5]", "f32[2] = slice %0 starts=[4] limits=[6] strides=[1]", "(C3)"},
      {"f32[5]", "f32[2] = slice %0 starts=[1] limits=[5] strides=[0]", "(C4)"},
      {"f32[5]", "f32[3] = slice %0 starts=[1] limits=[5] strides=[2]", "(C5)"},
      {"f32[2,3,4]", "f32[4,2,3] = transpose %0 dims=[2,0,1]", ""},
      {"f32[2,3]", "f64[3,2] = transpose %0 dims=[1,0]", "(C1)"},
      {"f32[2,3]", "f32[3,2] = transpose %0 dims=[1]", "(C2)"},
      {"f32[2,3]", "f32[3,3] = transpose %0 dims=[1,1]", "(C2)"},
      {"f32[2,3]", "f32[3,2] = transpose %0 dims=[1,2]", "(C2)"},
      {"f32[2,3]", "f32[2,3] = transpose %0 dims=[1,0]", "(C3)"},
  });
}

TEST(CheckTypesTest, DynamicSlicesAndBarriers) {
  Expect({
      {"f32[4,3] i32[]", "f32[2,3] = dynamic_slice %0 %1 %1 sizes=[2,3]", ""},
      {"f32[4] i32[]", "f64[2] = dynamic_slice %0 %1 sizes=[2]", "(C1)"},
      {"f32[4] i32[]", "f32[2] = dynamic_slice %0 %1 %1 sizes=[2]", "(C2)"},
      {"f32[4] i32[]", "f32[2] = dynamic_slice %0 %1 sizes=[2,2]", "(C2)"},
      {"f32[4]", "f32[2] = dynamic_slice %0 sizes=[2]", "(C2)"},
      {"f32[4] f32[]", "f32[2] = dynamic_slice %0 %1 sizes=[2]", "(I2)"},
      {"f32[4] i32[1]", "f32[2] = dynamic_slice %0 %1 sizes=[2]", "(I2)"},
      {"f32[4,3] i32[] i64[]", "f32[2,3] = dynamic_slice %0 %1 %2 sizes=[2,3]", "(C3)"},
      {"f32[4] i32[]", "f32[5] = dynamic_slice %0 %1 sizes=[5]", "(C4)"},
      {"f32[4] i32[]", "f32[3] = dynamic_slice %0 %1 sizes=[2]", "(C5)"},
      {"f32[4] f32[2] u8[]", "f32[4] = dynamic_update_slice %0 %1 %2", ""},
      {"f32[4] f32[2] u8[]", "f32[5] = dynamic_update_slice %0 %1 %2", "(C1)"},
      {"f32[4] f64[2] u8[]", "f32[4] = dynamic_update_slice %0 %1 %2", "(C2)"},
      {"f32[4] f32[2,1] u8[]", "f32[4] = dynamic_update_slice %0 %1 %2", "(C3)"},
      {"f32[4] f32[2] u8[]", "f32[4] = dynamic_update_slice %0 %1 %2 %2", "(C4)"},
      {"f32[4] f32[2] i1[]", "f32[4] = dynamic_update_slice %0 %1 %2", "(I3)"},
      {"f32[4,4] f32[2,2] u8[] u16[]", "f32[4,4] = dynamic_update_slice %0 %1 %2 %3", "(C5)"},
      {"f32[4] f32[5] u8[]", "f32[4] = dynamic_update_slice %0 %1 %2", "(C6)"},
      {"f32[4] i1[]", "f32[4], %21 i1[] = optimization_barrier %0 %1", ""},
      {"f32[4] i1[]", "f32[4], %21 i1[1] = optimization_barrier %0 %1", "(C1)"},
  });
}

// The parser refuses any other size.
TEST(CheckTypesTest, ConstantsHaveOneElementOrAll) {
  Program program = Parse(ProgramOf("", "f32[3] = constant value=[1,2,3]")).value();
  Literal& literal = std::get<Literal>(program.parts[0].function.operations[0].attributes[0].value);
  EXPECT_TRUE(CheckTypes(program).ok());
  literal.bytes.resize(4);
  EXPECT_TRUE(CheckTypes(program).ok());
  for (const size_t size : {0, 3, 8, 16}) {
    literal.bytes.resize(size);
    EXPECT_NE(CheckTypes(program).message().find("[StableHLO constant (C1)]"), std::string::npos) << size;
  }
}

TEST(CheckTypesTest, Dots) {
  const auto dims = [](const char* lb, const char* rb, const char* lc, const char* rc) {
    return std::string(" = dot_general %0 %1 lhs_batching_dims=[") + lb + "] rhs_batching_dims=[" + rb +
           "] lhs_contracting_dims=[" + lc + "] rhs_contracting_dims=[" + rc + "]";
  };
  const std::string good = dims("0", "2", "2", "0");
  const std::string c1 = "f32[]" + dims("0", "", "2", "0"), c2 = "f32[]" + dims("0", "2", "2", ""),
                    c3 = "f32[]" + dims("2", "2", "2", "0"), c4 = "f32[]" + dims("0", "2", "2", "2"),
                    c5 = "f32[]" + dims("3", "2", "2", "0"), c6 = "f32[]" + dims("0", "2", "3", "0"),
                    c7 = "f32[]" + dims("0", "3", "2", "0"), c8 = "f32[]" + dims("0", "2", "2", "3"),
                    c9 = "f32[]" + dims("0", "1", "2", "0"), c10 = "f32[]" + dims("0", "2", "1", "0");
  const std::string ok = "f32[5,2,4]" + good, wide = "f64[5,2,4]" + good, small = "bf16[5,2,4]" + good,
                    shape = "f32[5,4,2]" + good, integer = "i64[5,2,4]" + good;
  const char* types = "f32[5,2,3] f32[3,4,5]";
  Expect({
      {types, ok.c_str(), ""},
      {types, wide.c_str(), ""},
      {types, c1.c_str(), "(C1)"},
      {types, c2.c_str(), "(C2)"},
      {types, c3.c_str(), "(C3)"},
      {types, c4.c_str(), "(C4)"},
      {types, c5.c_str(), "(C5)"},
      {types, c6.c_str(), "(C6)"},
      {types, c7.c_str(), "(C7)"},
      {types, c8.c_str(), "(C8)"},
      {types, c9.c_str(), "(C9)"},
      {types, c10.c_str(), "(C10)"},
      {types, shape.c_str(), "(C12)"},
      {"f32[5,2,3] f64[3,4,5]", ok.c_str(), "(C13)"},
      {types, small.c_str(), "or a larger one of that sort"},
      {types, integer.c_str(), "or a larger one of that sort"},
      {"f32[2,3] f32[3,4]", "f32[2,4] = dot %0 %1", ""},
      {"f32[3] f32[3,4]", "f32[4] = dot %0 %1", ""},
      {"f32[2,3] f32[3]", "f32[2] = dot %0 %1", ""},
      {"i8[3] i8[3]", "i32[] = dot %0 %1", ""},
      {"i8[3] i8[3]", "u32[] = dot %0 %1", "larger one of that sort"},
      {"i8[3] u8[3]", "i32[] = dot %0 %1", "expected elements of type i8"},
      {"f32[2,3] f32[2,4]", "f32[2,4] = dot %0 %1", "expected 3 in dimension 0"},
      {"f32[] f32[3]", "f32[3] = dot %0 %1", "expected 1 or 2 dimensions"},
      {"f32[3] f32[3,1,1]", "f32[3] = dot %0 %1", "expected 1 or 2 dimensions"},
      {"f32[2,3] f32[3,4]", "f32[4,2] = dot %0 %1", "expected f32[2,4]"},
  });
}

// ---- gather and scatter ----

// The attributes of a gather that is right for f32[4,5,6] and i32[7,4,1] (one batching dimension), with changes.
std::string Changed(std::string text, const std::vector<std::pair<std::string, std::string>>& changes) {
  for (const auto& [old, replacement] : changes) {
    const size_t at = text.find(old);
    EXPECT_NE(at, text.npos) << old;
    text.replace(at, old.size(), replacement);
  }
  return text;
}

using Changes = std::vector<std::pair<std::string, std::string>>;
struct Change {
  Changes changes;
  const char* error;
};

void ExpectChanges(const std::string& kind, const std::string& program, const std::vector<Change>& cases) {
  ASSERT_EQ(ErrorOf(program), "");
  for (const Change& test : cases) {
    const std::string text = Changed(program, test.changes), error = ErrorOf(text);
    if (test.error[0] == '\0') {
      EXPECT_EQ(error, "");
      continue;
    }
    EXPECT_NE(error.find("[StableHLO " + kind + " " + test.error + "]"), error.npos) << test.error << "\n" << error;
  }
}

TEST(CheckTypesTest, Gather) {
  const std::string good =
      ProgramOf("f32[4,5,6] i32[7,4,1]",
                "f32[7,4,3] = gather %0 %1 offset_dims=[2] collapsed_slice_dims=[1] operand_batching_dims=[0] "
                "start_indices_batching_dims=[1] start_index_map=[1] index_vector_dim=2 sizes=[1,1,3]");
  ExpectChanges(
      "gather", good,
      {
          {{{"collapsed_slice_dims=[1]", "collapsed_slice_dims=[]"}}, "(C1)"},
          {{{"index_vector_dim=2", "index_vector_dim=4"}}, "(C2)"},
          {{{"start_index_map=[1]", "start_index_map=[1,2]"}}, "(C3)"},
          {{{"index_vector_dim=2", "index_vector_dim=3"}, {"f32[7,4,3]", "f32[7,4,1,3]"}, {"=[2]", "=[3]"}}, ""},
          {{{"offset_dims=[2]", "offset_dims=[2,2]"}, {"collapsed_slice_dims=[1]", "collapsed_slice_dims=[]"}}, "(C4)"},
          {{{"offset_dims=[2]", "offset_dims=[2,0]"}, {"collapsed_slice_dims=[1]", "collapsed_slice_dims=[]"}}, "(C4)"},
          {{{"offset_dims=[2]", "offset_dims=[3]"}}, "(C5)"},
          {{{"collapsed_slice_dims=[1]", "collapsed_slice_dims=[0]"}}, "(C6)"},
          {{{"offset_dims=[2]", "offset_dims=[]"}, {"collapsed_slice_dims=[1]", "collapsed_slice_dims=[2,1]"}}, "(C7)"},
          {{{"collapsed_slice_dims=[1]", "collapsed_slice_dims=[3]"}}, "(C8)"},
          {{{"sizes=[1,1,3]", "sizes=[1,2,3]"}}, "(C9)"},
          {{{"offset_dims=[2]", "offset_dims=[]"},
            {"operand_batching_dims=[0]", "operand_batching_dims=[2,0]"},
            {"start_index_map", "start_index_map"}},
           "(C10)"},
          {{{"operand_batching_dims=[0]", "operand_batching_dims=[3]"}}, "(C11)"},
          {{{"sizes=[1,1,3]", "sizes=[2,1,3]"}}, "(C12)"},
          {{{"start_indices_batching_dims=[1]", "start_indices_batching_dims=[1,1]"}}, "(C13)"},
          {{{"start_indices_batching_dims=[1]", "start_indices_batching_dims=[3]"}}, "(C14)"},
          {{{"start_indices_batching_dims=[1]", "start_indices_batching_dims=[2]"}}, "(C15)"},
          {{{"start_indices_batching_dims=[1]", "start_indices_batching_dims=[]"}}, "(C16)"},
          {{{"start_indices_batching_dims=[1]", "start_indices_batching_dims=[0]"}}, "(C17)"},
          {{{"start_index_map=[1]", "start_index_map=[0]"}}, "(C18)"},
          {{{"start_index_map=[1]", "start_index_map=[3]"}}, "(C19)"},
          {{{"sizes=[1,1,3]", "sizes=[1,1]"}}, "(C20)"},
          {{{"sizes=[1,1,3]", "sizes=[1,1,7]"}}, "(C21)"},
          {{{"f32[7,4,3]", "f32[4,7,3]"}}, "(C22)"},
          {{{"f32[7,4,3]", "f64[7,4,3]"}}, "(C23)"},
          {{{"i32[7,4,1]", "f32[7,4,1]"}}, "(I2)"},
      });
}

TEST(CheckTypesTest, Scatter) {
  const std::string good =
      ProgramOf("f32[4,5,6] i32[7,4,1] f32[7,4,3]",
                "f32[4,5,6] = scatter %0 %1 %2 fold=add update_window_dims=[2] inserted_window_dims=[1] "
                "input_batching_dims=[0] scatter_indices_batching_dims=[1] scatter_dims_to_operand_dims=[1] "
                "index_vector_dim=2");
  ExpectChanges("scatter", good,
                {
                    {{{"inserted_window_dims=[1]", "inserted_window_dims=[]"}}, "(C2)"},
                    {{{"f32[7,4,3]", "f32[7,4,6]"}}, ""},
                    {{{"f32[7,4,3]", "f32[7,4,7]"}}, "(C4)"},
                    {{{"f32[7,4,3]", "f32[4,7,3]"}}, "(C4)"},
                    {{{"f32[7,4,3]", "f32[7,4]"}}, "(C4)"},
                    {{{"f32[7,4,3]", "f64[7,4,3]"}}, "(C6)"},
                    {{{"update_window_dims=[2]", "update_window_dims=[2,2]"},
                      {"inserted_window_dims=[1]", "inserted_window_dims=[]"},
                      {"f32[7,4,3]", "f32[7,4,3,1]"}},
                     "(C7)"},
                    {{{"update_window_dims=[2]", "update_window_dims=[3]"}}, "(C8)"},
                    {{{"inserted_window_dims=[1]", "inserted_window_dims=[0]"}}, "(C9)"},
                    {{{"update_window_dims=[2]", "update_window_dims=[]"},
                      {"inserted_window_dims=[1]", "inserted_window_dims=[2,1]"}},
                     "(C10)"},
                    {{{"inserted_window_dims=[1]", "inserted_window_dims=[3]"}}, "(C11)"},
                    {{{"update_window_dims=[2]", "update_window_dims=[]"},
                      {"input_batching_dims=[0]", "input_batching_dims=[2,0]"}},
                     "(C12)"},
                    {{{"input_batching_dims=[0]", "input_batching_dims=[3]"}}, "(C13)"},
                    {{{"indices_batching_dims=[1]", "indices_batching_dims=[1,1]"}}, "(C14)"},
                    {{{"indices_batching_dims=[1]", "indices_batching_dims=[3]"}}, "(C15)"},
                    {{{"indices_batching_dims=[1]", "indices_batching_dims=[2]"}}, "(C16)"},
                    {{{"indices_batching_dims=[1]", "indices_batching_dims=[]"}}, "(C17)"},
                    {{{"indices_batching_dims=[1]", "indices_batching_dims=[0]"}}, "(C18)"},
                    {{{"operand_dims=[1]", "operand_dims=[]"}}, "(C19)"},
                    {{{"operand_dims=[1]", "operand_dims=[0]"}}, "(C20)"},
                    {{{"operand_dims=[1]", "operand_dims=[3]"}}, "(C21)"},
                    {{{"index_vector_dim=2", "index_vector_dim=4"}}, "(C22)"},
                    {{{"fold=add", "fold=or"}}, "(C23)"},
                    {{{"f32[4,5,6] = scatter", "f32[4,5,7] = scatter"}}, "(C24)"},
                    {{{"f32[4,5,6] = scatter", "f64[4,5,6] = scatter"}}, "(C25)"},
                    {{{"i32[7,4,1]", "i1[7,4,1]"}}, "(I2)"},
                });
}

}  // namespace
}  // namespace axccl::program
