// Every operation of the reference executor against results worked out by hand or taken from the examples of
// StableHLO's specification, and the ways in which ranks meet.
#include "src/program/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "src/program/element.h"
#include "src/program/reference/scalar.h"
#include "src/program/text.h"

namespace axccl::program {
namespace {

std::string Message(const Status& status) { return std::string(status.message()); }

// "f32[2]: 1,2"
std::string Text(const Tensor& tensor) {
  std::string text = Print(tensor.type) + ":";
  for (int64_t i = 0; i < Elements(tensor.type); ++i)
    text += (i == 0 ? " " : ",") + ElementText(tensor.type.data_type, tensor.at(i));
  return text;
}

// The outputs of all ranks, a line for each.
std::string Outputs(const std::string& text, const std::vector<Tensors>& inputs) {
  const Result<Program> program = Parse(text);
  if (!program.ok()) return Message(program.status());
  const Result<std::vector<Tensors>> outputs = RunReference(program.value(), inputs);
  if (!outputs.ok()) return Message(outputs.status());
  std::string lines;
  for (const Tensors& of_rank : outputs.value()) {
    std::string line;
    for (const Tensor& output : of_rank) line += (line.empty() ? "" : "; ") + Text(output);
    lines += line + "\n";
  }
  return lines;
}

// Of one rank; `body` are lines without their indentation, divided by '|'.
std::string RunBody(std::string body) {
  std::string text = "axccl-program 1\nranks 1\npart main on [0]\n  ";
  for (const char c : body) text += c == '|' ? std::string("\n  ") : std::string(1, c);
  const std::string lines = Outputs(text + "\n", {{}});
  return lines.substr(0, lines.find('\n'));
}

struct LocalCase {
  std::string name, body, result;
};

void PrintTo(const LocalCase& c, std::ostream* stream) { *stream << c.body; }

class LocalTest : public testing::TestWithParam<LocalCase> {};

TEST_P(LocalTest, HasTheResultOfItsDefinition) { EXPECT_EQ(RunBody(GetParam().body), GetParam().result); }

std::vector<LocalCase> Binaries() {
  std::vector<LocalCase> cases;
  const auto add = [&](const char* op, const char* type, const char* a, const char* b, const char* result) {
    cases.push_back({std::string(op) + "_" + std::to_string(cases.size()),
                     std::string("%0 ") + type + " = constant value=" + a + "|%1 " + type + " = constant value=" + b +
                         "|%2 " + type + " = " + op + " %0 %1|return %2",
                     std::string(type) + ": " + result});
  };
  add("add", "i8[3]", "[127,-128,1]", "[1,-1,2]", "-128,127,3");
  add("add", "i1[4]", "[true,true,false,false]", "[true,false,true,false]", "true,true,true,false");
  add("add", "u16[]", "65535", "2", "1");
  add("add", "f16[2]", "[2048,0.5]", "[1,0.25]", "2048,0.75");
  add("add", "bf16[2]", "[256,-1]", "[1,3]", "256,2");
  add("subtract", "u8[]", "0", "1", "255");
  add("multiply", "i32[2]", "[65536,-3]", "[65536,5]", "0,-15");
  add("multiply", "i1[2]", "[true,true]", "[true,false]", "true,false");
  add("multiply", "u16[]", "65535", "65535", "1");
  add("divide", "i32[6]", "[7,-7,7,-7,5,-2147483648]", "[2,2,-2,-2,0,-1]", "3,-3,-3,3,-1,-2147483648");
  add("divide", "u32[2]", "[7,1]", "[2,0]", "3,4294967295");
  add("divide", "f32[3]", "[1,-1,0]", "[4,0,0]", "0.25,0xff800000,0xffc00000");
  add("remainder", "i32[6]", "[17,-17,17,-17,5,-2147483648]", "[3,3,-3,-3,0,-1]", "2,-2,2,-2,5,0");
  add("remainder", "f64[2]", "[17.5,-17.5]", "[3,3]", "2.5,-2.5");
  add("power", "i32[6]", "[-2,2,3,-1,-1,5]", "[3,-1,0,-3,-2,2]", "-8,0,1,-1,1,25");
  add("power", "f32[3]", "[-2,0.5,36]", "[3,-1,0.5]", "-8,2,6");
  add("maximum", "f32[4]", "[1,-0,0,0x7fc00000]", "[2,0,-0,1]", "2,0,0,0x7fc00000");
  add("minimum", "f32[4]", "[1,-0,0,1]", "[2,0,-0,0x7fc00000]", "1,-0,-0,0x7fc00000");
  add("maximum", "i8[2]", "[-1,3]", "[1,2]", "1,3");
  add("minimum", "u8[2]", "[255,3]", "[1,2]", "1,2");
  add("minimum", "i1[3]", "[true,true,false]", "[true,false,false]", "true,false,false");
  add("and", "i8[2]", "[12,-1]", "[10,7]", "8,7");
  add("or", "u8[]", "12", "10", "14");
  add("xor", "i64[]", "12", "-1", "-13");
  add("xor", "i1[2]", "[true,true]", "[true,false]", "false,true");
  return cases;
}

std::vector<LocalCase> Unaries() {
  std::vector<LocalCase> cases;
  const auto add = [&](const char* op, const char* type, const char* operand, const char* result_type,
                       const char* result) {
    cases.push_back({std::string(op) + "_" + std::to_string(cases.size()),
                     std::string("%0 ") + type + " = constant value=" + operand + "|%1 " + result_type + " = " + op +
                         " %0|return %1",
                     std::string(result_type) + ": " + result});
  };
  add("abs", "i8[3]", "[-128,-3,4]", "i8[3]", "-128,3,4");
  add("abs", "f32[2]", "[-0,-2.5]", "f32[2]", "0,2.5");
  add("negate", "u8[2]", "[1,0]", "u8[2]", "255,0");
  add("negate", "f16[2]", "[0,-3]", "f16[2]", "-0,3");
  add("sign", "f64[4]", "[-2,-0,0,5]", "f64[4]", "-1,-0,0,1");
  add("sign", "i32[3]", "[-2,0,5]", "i32[3]", "-1,0,1");
  add("not", "i1[2]", "[true,false]", "i1[2]", "false,true");
  add("not", "u8[2]", "[0,254]", "u8[2]", "255,1");
  add("floor", "f32[3]", "[-1.5,-0.5,2.75]", "f32[3]", "-2,-1,2");
  add("is_finite", "f32[4]", "[1.5,0x7f800000,0xff800000,0x7fc00000]", "i1[4]", "true,false,false,false");
  add("is_finite", "bf16[3]", "[-0,1,0x7f80]", "i1[3]", "true,true,false");
  add("is_finite", "f16[3]", "[65504,0x7c00,0xfe00]", "i1[3]", "true,false,false");
  add("is_finite", "f64[2]", "[1e+300,0xfff0000000000000]", "i1[2]", "true,false");
  add("sqrt", "f32[2]", "[4,2.25]", "f32[2]", "2,1.5");
  add("rsqrt", "f64[2]", "[4,0.25]", "f64[2]", "0.5,2");
  add("exponential", "f64[2]", "[0,-0]", "f64[2]", "1,1");
  add("log", "f64[2]", "[1,0]", "f64[2]", "0,0xfff0000000000000");
  add("sine", "f32[]", "0", "f32[]", "0");
  add("cosine", "f32[]", "0", "f32[]", "1");
  add("tanh", "f32[2]", "[0,100]", "f32[2]", "0,1");
  add("copy", "i64[2]", "[-1,9]", "i64[2]", "-1,9");
  add("convert", "f32[6]", "[1.9,-1.9,300,-300,0x7fc00000,0x7f800000]", "i8[6]", "1,-1,127,-128,0,127");
  add("convert", "f32[3]", "[-1,255.5,1e+09]", "u8[3]", "0,255,255");
  add("convert", "i32[3]", "[-1,256,7]", "u8[3]", "255,0,7");
  add("convert", "i32[2]", "[0,-3]", "i1[2]", "false,true");
  add("convert", "i1[2]", "[true,false]", "f32[2]", "1,0");
  add("convert", "f32[4]", "[1.0039062,1.0117188,3.4e+38,1e-40]", "bf16[4]", "1,1.015625,0x7f80,9.1835e-41");
  add("convert", "f32[4]", "[65519,65520,2049,1e-07]", "f16[4]", "65504,0x7c00,2048,1.1920929e-07");
  add("convert", "f64[]", "1.0039062500000002", "bf16[]", "1.0078125");
  add("reshape", "i8[2,3]", "[1,2,3,4,5,6]", "i8[3,2]", "1,2,3,4,5,6");
  return cases;
}

std::vector<LocalCase> Moves() {
  const std::string six = "%0 i32[2,3] = constant value=[1,2,3,4,5,6]|";
  return {
      {"compare",
       "%0 f32[3] = constant value=[1,2,0x7fc00000]|%1 f32[3] = constant value=[2,2,1]|"
       "%2 i1[3] = compare %0 %1 direction=LE|%3 i1[3] = compare %0 %1 direction=NE|return %2 %3",
       "i1[3]: true,true,false; i1[3]: true,false,true"},
      {"compare_signs",
       "%0 i8[] = constant value=-1|%1 i8[] = constant value=1|%2 i1[] = compare %0 %1 direction=GT|"
       "%3 u8[] = constant value=255|%4 u8[] = constant value=1|%5 i1[] = compare %3 %4 direction=GT|"
       "return %2 %5",
       "i1[]: false; i1[]: true"},
      {"select",
       "%0 i1[2] = constant value=[true,false]|%1 i8[2] = constant value=[1,2]|%2 i8[2] = constant value=[3,4]|"
       "%3 i8[2] = select %0 %1 %2|%4 i1[] = constant value=false|%5 i8[2] = select %4 %1 %2|return %3 %5",
       "i8[2]: 1,4; i8[2]: 3,4"},
      {"clamp",
       "%0 i32[] = constant value=5|%1 i32[3] = constant value=[3,8,13]|%2 i32[3] = constant value=[10,7,10]|"
       "%3 i32[3] = clamp %0 %1 %2|return %3",
       "i32[3]: 5,7,10"},
      {"broadcast_in_dim",
       "%0 i32[1,3] = constant value=[1,2,3]|%1 i32[2,3,2] = broadcast_in_dim %0 dims=[2,1]|return %1",
       "i32[2,3,2]: 1,1,2,2,3,3,1,1,2,2,3,3"},
      {"concatenate", six + "%1 i32[2,1] = constant value=[7,8]|%2 i32[2,4] = concatenate %0 %1 dim=1|return %2",
       "i32[2,4]: 1,2,3,7,4,5,6,8"},
      {"iota", "%0 i8[2,3] = iota dim=1|%1 f16[2,3] = iota dim=0|return %0 %1",
       "i8[2,3]: 0,1,2,0,1,2; f16[2,3]: 0,0,0,1,1,1"},
      {"transpose", six + "%1 i32[3,2] = transpose %0 dims=[1,0]|return %1", "i32[3,2]: 1,4,2,5,3,6"},
      {"transpose_of_three",
       "%0 i32[2,3,2] = constant value=[1,2,3,4,5,6,7,8,9,10,11,12]|%1 i32[2,3,2] = transpose %0 dims=[2,1,0]|return "
       "%1",
       "i32[2,3,2]: 1,7,3,9,5,11,2,8,4,10,6,12"},
      {"reverse", six + "%1 i32[2,3] = reverse %0 dims=[1]|%2 i32[2,3] = reverse %0 dims=[0,1]|return %1 %2",
       "i32[2,3]: 3,2,1,6,5,4; i32[2,3]: 6,5,4,3,2,1"},
      {"slice", six + "%1 i32[1,2] = slice %0 starts=[1,0] limits=[2,3] strides=[1,2]|return %1", "i32[1,2]: 4,6"},
      {"pad", six + "%1 i32[] = constant value=0|%2 i32[5,9] = pad %0 %1 low=[0,1] high=[2,1] interior=[1,2]|return %2",
       "i32[5,9]: 0,1,0,0,2,0,0,3,0,0,0,0,0,0,0,0,0,0,0,4,0,0,5,0,0,6,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"},
      {"pad_cuts",
       six + "%1 i32[] = constant value=0|%2 i32[2,2] = pad %0 %1 low=[0,-1] high=[0,0] interior=[0,0]|return %2",
       "i32[2,2]: 2,3,5,6"},
      {"dynamic_slice",
       six +
           "%1 i64[] = constant value=-1|%2 i64[] = constant value=3|%3 i32[1,2] = dynamic_slice %0 %1 %2 sizes=[1,2]|"
           "return %3",
       "i32[1,2]: 2,3"},
      {"dynamic_update_slice",
       six + "%1 i32[1,2] = constant value=[8,9]|%2 u8[] = constant value=200|%3 u8[] = constant value=0|"
             "%4 i32[2,3] = dynamic_update_slice %0 %1 %2 %3|return %4",
       "i32[2,3]: 1,2,3,8,9,6"},
      {"starts_of_64_bits_without_sign",
       six + "%1 u64[] = constant value=18446744073709551615|%2 u64[] = constant value=0|"
             "%3 i32[1,2] = dynamic_slice %0 %1 %2 sizes=[1,2]|%4 i32[1,1] = constant value=9|"
             "%5 i32[2,3] = dynamic_update_slice %0 %4 %2 %1|return %3 %5",
       "i32[1,2]: 4,5; i32[2,3]: 1,2,9,4,5,6"},
      {"windows_of_64_bits_without_sign",
       "%0 i32[3] = constant value=[1,2,3]|%1 u64[1] = constant value=18446744073709551615|"
       "%2 i32[2] = constant value=9|%3 i32[3] = scatter %0 %1 %2 fold=add update_window_dims=[0] "
       "inserted_window_dims=[] input_batching_dims=[] "
       "scatter_indices_batching_dims=[] scatter_dims_to_operand_dims=[0] index_vector_dim=0|"
       "%4 i32[2] = gather %0 %1 offset_dims=[0] collapsed_slice_dims=[] operand_batching_dims=[] "
       "start_indices_batching_dims=[] start_index_map=[0] index_vector_dim=0 sizes=[2]|return %3 %4",
       "i32[3]: 1,2,3; i32[2]: 2,3"},
  };
}

std::vector<LocalCase> Folds() {
  const std::string six = "%0 i32[2,3] = constant value=[1,2,3,4,5,6]|";
  return {
      {"reduce",
       six + "%1 i32[] = constant value=10|%2 i32[2] = reduce %0 %1 fold=add dims=[1]|"
             "%3 i32[3] = reduce %0 %1 fold=max dims=[0]|%4 i32[] = reduce %0 %1 fold=mul dims=[0,1]|return %2 %3 %4",
       "i32[2]: 16,25; i32[3]: 10,10,10; i32[]: 7200"},
      // 256 + 1 is 256 in bf16, so rounding after each of them would give 256.
      {"reduce_rounds_once",
       "%0 bf16[4] = constant value=[256,1,1,2]|%1 bf16[] = constant value=0|"
       "%2 bf16[] = reduce %0 %1 fold=add dims=[0]|return %2",
       "bf16[]: 260"},
      {"reduce_of_nothing",
       "%0 i32[0,2] = constant value=0|%1 i32[] = constant value=7|"
       "%2 i32[2] = reduce %0 %1 fold=add dims=[0]|return %2",
       "i32[2]: 7,7"},
      {"dot", six + "%1 i32[3,2] = constant value=[1,0,0,1,2,2]|%2 i32[2,2] = dot %0 %1|return %2",
       "i32[2,2]: 7,8,16,17"},
      {"dot_of_vectors", "%0 f32[3] = constant value=[1,2,3]|%1 f32[] = dot %0 %0|return %1", "f32[]: 14"},
      {"dot_general",
       "%0 i64[2,2,2] = constant value=[1,2,3,4,5,6,7,8]|%1 i64[2,2,2] = constant value=[1,0,0,1,1,0,0,1]|"
       "%2 i64[2,2,2] = dot_general %0 %1 lhs_batching_dims=[0] rhs_batching_dims=[0] lhs_contracting_dims=[2] "
       "rhs_contracting_dims=[1]|return %2",
       "i64[2,2,2]: 1,2,3,4,5,6,7,8"},
      {"dot_general_to_another_type",
       "%0 bf16[2] = constant value=[256,1]|%1 bf16[2] = constant value=1|"
       "%2 f32[] = dot_general %0 %1 lhs_batching_dims=[] rhs_batching_dims=[] lhs_contracting_dims=[0] "
       "rhs_contracting_dims=[0]|return %2",
       "f32[]: 257"},
      {"dot_of_two_contractions",
       "%0 i32[2,3,2] = constant value=[1,2,3,4,5,6,7,8,9,10,11,12]|%1 i32[2,3] = constant value=[1,1,1,1,1,2]|"
       "%2 i32[2] = dot_general %0 %1 lhs_batching_dims=[] rhs_batching_dims=[] lhs_contracting_dims=[2,1] "
       "rhs_contracting_dims=[0,1]|return %2",
       "i32[2]: 27,69"},
      // The example of the specification.
      {"gather",
       "%0 i32[2,3,4,2] = constant "
       "value=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,"
       "30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48]|"
       "%1 i64[2,2,3,2] = constant value=[0,0,1,0,2,1,0,1,1,1,0,9,0,0,2,1,2,2,1,2,0,1,1,0]|"
       "%2 i32[2,2,3,2,2] = gather %0 %1 offset_dims=[3,4] collapsed_slice_dims=[1] operand_batching_dims=[0] "
       "start_indices_batching_dims=[1] start_index_map=[2,1] index_vector_dim=3 sizes=[1,1,2,2]|return %2",
       "i32[2,2,3,2,2]: 1,2,3,4,3,4,5,6,13,14,15,16,33,34,35,36,35,36,37,38,41,42,43,44,"
       "1,2,3,4,13,14,15,16,21,22,23,24,43,44,45,46,33,34,35,36,27,28,29,30"},
      {"gather_of_scalars",
       "%0 i32[4] = constant value=[10,20,30,40]|%1 i32[3] = constant value=[3,-5,9]|"
       "%2 i32[3] = gather %0 %1 offset_dims=[] collapsed_slice_dims=[0] operand_batching_dims=[] "
       "start_indices_batching_dims=[] start_index_map=[0] index_vector_dim=1 sizes=[1]|return %2",
       "i32[3]: 40,10,40"},
      {"scatter",
       six + "%1 i32[3,1] = constant value=[1,0,1]|%2 i32[3,3] = constant value=[1,1,1,2,2,2,10,10,10]|"
             "%3 i32[2,3] = scatter %0 %1 %2 fold=add update_window_dims=[1] inserted_window_dims=[0] "
             "input_batching_dims=[] scatter_indices_batching_dims=[] scatter_dims_to_operand_dims=[0] "
             "index_vector_dim=1|return %3",
       "i32[2,3]: 3,4,5,15,16,17"},
      {"scatter_leaves_out_what_is_outside",
       "%0 i32[3] = constant value=0|%1 i64[4] = constant value=[2,-1,3,9223372036854775807]|%2 i32[4] = constant "
       "value=1|"
       "%3 i32[3] = scatter %0 %1 %2 fold=add update_window_dims=[] inserted_window_dims=[0] input_batching_dims=[] "
       "scatter_indices_batching_dims=[] scatter_dims_to_operand_dims=[0] index_vector_dim=1|return %3",
       "i32[3]: 0,0,1"},
      {"scatter_of_batches",
       six + "%1 i64[2,1] = constant value=[2,0]|%2 i32[2,1] = constant value=[100,200]|"
             "%3 i32[2,3] = scatter %0 %1 %2 fold=max update_window_dims=[1] inserted_window_dims=[] "
             "input_batching_dims=[0] scatter_indices_batching_dims=[0] scatter_dims_to_operand_dims=[1] "
             "index_vector_dim=1|return %3",
       "i32[2,3]: 1,2,100,200,5,6"},
  };
}

std::vector<LocalCase> Controls() {
  const std::string six = "%0 i32[2,3] = constant value=[1,2,3,4,5,6]|";
  return {
      {"if",
       "%0 i1[] = constant value=false|%1 i8[] = constant value=1|%2 i8[] = if %0|then|  return %1|else|"
       "  %3 i8[] = add %1 %1|  return %3|return %2",
       "i8[]: 2"},
      {"while",
       "%0 i32[] = constant value=5|%1 i32[] = constant value=1|%2 i32[], %3 i32[] = while %0 %1|cond|"
       "  argument %4 i32[]|  argument %5 i32[]|  %6 i32[] = constant value=1|"
       "  %7 i1[] = compare %4 %6 direction=GT|  return %7|body|  argument %8 i32[]|  argument %9 i32[]|"
       "  %10 i32[] = subtract %8 %1|  %11 i32[] = multiply %8 %9|  return %10 %11|return %2 %3",
       "i32[]: 1; i32[]: 120"},
      {"while_without_rounds",
       "%0 i1[] = constant value=false|%1 i1[] = while %0|cond|  argument %2 i1[]|  return %2|body|"
       "  argument %3 i1[]|  return %3|return %1",
       "i1[]: false"},
      {"optimization_barrier",
       six + "%1 i8[] = constant value=3|%2 i32[2,3], %3 i8[] = optimization_barrier %0 %1|"
             "%4 = free %0|return %3 %2",
       "i8[]: 3; i32[2,3]: 1,2,3,4,5,6"},
  };
}

std::string NameOfCase(const testing::TestParamInfo<LocalCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Binary, LocalTest, testing::ValuesIn(Binaries()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Unary, LocalTest, testing::ValuesIn(Unaries()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Move, LocalTest, testing::ValuesIn(Moves()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Fold, LocalTest, testing::ValuesIn(Folds()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Control, LocalTest, testing::ValuesIn(Controls()), NameOfCase);

// ---- floats of 16 bits ----

template <int kExponentBits>
void ExpectRoundTrips() {
  for (uint32_t word = 0; word < 1 << 16; ++word) {
    const float number = ShortFloat<kExponentBits>::Load(static_cast<uint16_t>(word));
    const uint16_t back = ShortFloat<kExponentBits>::Store(number);
    if (std::isnan(number)) {
      EXPECT_TRUE(std::isnan(ShortFloat<kExponentBits>::Load(back))) << word;
    } else {
      EXPECT_EQ(back, word);
    }
  }
}

TEST(ShortFloats, RoundTrip) {
  ExpectRoundTrips<5>();
  ExpectRoundTrips<8>();
}

// Halfway between two neighbours, the even one; a little more or less, the nearer one.
TEST(ShortFloats, RoundToNearestEven) {
  for (uint32_t word = 0; word < 0x7bff; ++word) {
    const double low = ShortFloat<5>::Load(static_cast<uint16_t>(word));
    const double high = ShortFloat<5>::Load(static_cast<uint16_t>(word + 1));
    const double middle = (low + high) / 2;
    EXPECT_EQ(ShortFloat<5>::Store(middle), word + word % 2);
    EXPECT_EQ(ShortFloat<5>::Store(std::nextafter(middle, 0.0)), word);
    EXPECT_EQ(ShortFloat<5>::Store(std::nextafter(middle, 1e9)), word + 1);
  }
}

// ---- between ranks ----

Tensor Of(const TensorType& type, const std::vector<int32_t>& values) {
  Tensor tensor = Tensor::Zeros(type);
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

// Rank r's input is {10 r, 10 r + 1, ...}.
std::string RunOnRanks(int ranks, const Ints& dims, const std::string& body) {
  const TensorType type{DataType::kInt32, dims};
  std::string text = "axccl-program 1\nranks " + std::to_string(ranks) + "\npart main on [";
  std::vector<Tensors> inputs;
  for (int r = 0; r < ranks; ++r) {
    text += (r == 0 ? "" : ",") + std::to_string(r);
    std::vector<int32_t> values;
    for (int i = 0; i < Elements(type); ++i) values.push_back(10 * r + i);
    inputs.push_back({Of(type, values)});
  }
  text += "]\n  argument %0 " + Print(type) + "\n  ";
  for (const char c : body) text += c == '|' ? std::string("\n  ") : std::string(1, c);
  return Outputs(text + "\n", inputs);
}

TEST(Collectives, AllGather) {
  EXPECT_EQ(RunOnRanks(2, {2, 1}, "%1 i32[2,2] = all_gather %0 dim=1 groups=[[1,0]] channel=0|return %1"),
            "i32[2,2]: 10,0,11,1\ni32[2,2]: 10,0,11,1\n");
}

TEST(Collectives, AllReduceOfGroups) {
  EXPECT_EQ(RunOnRanks(4, {2},
                       "%1 i32[2], %2 i32[2] = all_reduce %0 %0 fold=add groups=[[0,2],[3,1]] channel=1|return %1 %2"),
            "i32[2]: 20,22; i32[2]: 20,22\ni32[2]: 40,42; i32[2]: 40,42\ni32[2]: 20,22; i32[2]: 20,22\n"
            "i32[2]: 40,42; i32[2]: 40,42\n");
}

// The order of the group decides how floats are rounded.
TEST(Collectives, AllReduceFoldsInTheOrderOfTheGroup) {
  const TensorType type{DataType::kFloat32, {1}};
  const auto of = [&](float value) {
    Tensor tensor = Tensor::Zeros(type);
    std::memcpy(tensor.bytes.data(), &value, sizeof value);
    return Tensors{tensor};
  };
  const auto run = [&](const std::string& group) {
    return Outputs(
        "axccl-program 1\nranks 3\npart main on [0,1,2]\n  argument %0 f32[1]\n  %1 f32[1] = all_reduce %0 fold=add "
        "groups=[" +
            group + "] channel=0\n  return %1\n",
        {of(1e8f), of(1), of(-1e8f)});
  };
  EXPECT_EQ(run("[0,1,2]"), "f32[1]: 0\nf32[1]: 0\nf32[1]: 0\n");
  EXPECT_EQ(run("[0,2,1]"), "f32[1]: 1\nf32[1]: 1\nf32[1]: 1\n");
}

TEST(Collectives, ReduceScatter) {
  EXPECT_EQ(RunOnRanks(2, {1, 4}, "%1 i32[1,2] = reduce_scatter %0 fold=max dim=1 groups=[[1,0]] channel=0|return %1"),
            "i32[1,2]: 12,13\ni32[1,2]: 10,11\n");
}

TEST(Collectives, AllToAll) {
  EXPECT_EQ(
      RunOnRanks(2, {2, 2}, "%1 i32[1,4] = all_to_all %0 split_dim=0 concat_dim=1 groups=[[0,1]] channel=0|return %1"),
      "i32[1,4]: 0,1,10,11\ni32[1,4]: 2,3,12,13\n");
}

TEST(Collectives, BroadcastAndPermuteGiveZerosToOthers) {
  EXPECT_EQ(RunOnRanks(3, {1},
                       "%1 i32[1] = collective_broadcast %0 groups=[[2,0]] channel=0|"
                       "%2 i32[1] = collective_permute %0 pairs=[[0,1],[1,0]] channel=0|return %1 %2"),
            "i32[1]: 20; i32[1]: 10\ni32[1]: 0; i32[1]: 0\ni32[1]: 20; i32[1]: 0\n");
}

TEST(Collectives, ReduceGivesZerosToOthers) {
  EXPECT_EQ(RunOnRanks(3, {1}, "%1 i32[1] = collective_reduce %0 fold=add groups=[[2,0]] channel=0|return %1"),
            "i32[1]: 0\ni32[1]: 0\ni32[1]: 20\n");
}

// Two operands with a root each; rank 1 is in no group.
TEST(Collectives, RootsAreValues) {
  EXPECT_EQ(RunOnRanks(3, {1},
                       "%1 i32[2] = constant value=[1,0]|%2 i32[1] = negate %0|"
                       "%3 i32[1], %4 i32[1] = collective_broadcast_from %0 %2 %1 groups=[[2,0]] channel=0|"
                       "%5 i32[1], %6 i32[1] = collective_reduce_to %0 %2 %1 fold=add groups=[[2,0]] channel=0|"
                       "return %3 %4 %5 %6"),
            "i32[1]: 0; i32[1]: -20; i32[1]: 20; i32[1]: 0\ni32[1]: 0; i32[1]: 0; i32[1]: 0; i32[1]: 0\n"
            "i32[1]: 0; i32[1]: -20; i32[1]: 0; i32[1]: -20\n");
}

TEST(Collectives, PartitionId) {
  EXPECT_EQ(RunOnRanks(2, {1}, "%1 u32[] = partition_id|%2 u32[] = replica_id|return %1 %2"),
            "u32[]: 0; u32[]: 0\nu32[]: 1; u32[]: 0\n");
}

// The second group goes through other rounds of a loop than the first.
TEST(Collectives, InLoopsOfGroups) {
  EXPECT_EQ(RunOnRanks(
                4, {1},
                "%1 i32[] = constant value=15|%2 i32[] = reshape %0|%3 i32[] = all_reduce %2 fold=add "
                "groups=[[0,1],[2,3]] channel=0|%4 i32[] = while %3|cond|  argument %5 i32[]|  %6 i1[] = compare %5 %1 "
                "direction=LT|  return %6|body|  argument %7 i32[]|  %8 i32[] = all_reduce %7 fold=add "
                "groups=[[0,1],[2,3]] channel=0|  return %8|return %4"),
            "i32[]: 20\ni32[]: 20\ni32[]: 50\ni32[]: 50\n");
}

constexpr char kStages[] =
    "axccl-program 1\nranks 3\npart first on [0]\n  argument %0 i32[1]\n  %1 = send %0 pairs=[[0,2]] channel=1\n"
    "  %2 i32[1] = add %0 %0\n  %3 = send %2 pairs=[[0,2]] channel=1\n  return\n"
    "part second on [2]\n  %0 i32[1] = recv pairs=[[0,2]] channel=1\n  %1 i32[1] = recv pairs=[[0,2]] channel=1\n"
    "  return %1 %0\n";

TEST(Stages, SendIsFirstInFirstOut) {
  const TensorType type{DataType::kInt32, {1}};
  EXPECT_EQ(Outputs(kStages, {{Of(type, {7})}, {}, {}}), "\n\ni32[1]: 14; i32[1]: 7\n");
}

TEST(Inputs, ThatDoNotFitAreNamed) {
  const TensorType type{DataType::kInt32, {1}}, other{DataType::kInt32, {2}};
  EXPECT_EQ(Outputs(kStages, {}), "there are inputs for 0 ranks, and the program has 3");
  EXPECT_EQ(Outputs(kStages, {{}, {}, {}}), "rank 0 has 0 inputs, and its part has 1 arguments");
  EXPECT_EQ(Outputs(kStages, {{Of(type, {7})}, {Of(type, {7})}, {}}),
            "rank 1 has 1 inputs, and its part has 0 arguments");
  EXPECT_EQ(Outputs(kStages, {{Of(other, {7, 8})}, {}, {}}), "rank 0: input 0 is i32[2], and argument %0 is i32[1]");
}

TEST(Inputs, WithoutDimensionsAreTheSameOnAllRanks) {
  const TensorType type{DataType::kInt32, {}};
  EXPECT_EQ(
      Outputs("axccl-program 1\nranks 3\npart main on [1,2]\n  argument %7 i32[]\n  return %7\n",
              {{}, {Of(type, {1})}, {Of(type, {2})}}),
      "rank 2: input 0, argument %7, is not the same as on rank 1; an input without dimensions is the same on all "
      "ranks of a part");
}

TEST(Standstill, NamesTwoRanks) {
  const std::string text =
      "axccl-program 1\nranks 2\npart a on [0]\n  %0 i32[1] = recv pairs=[[1,0]] channel=1\n  return %0\n"
      "part b on [1]\n  argument %0 i32[1]\n  %1 i32[1] = all_reduce %0 fold=add groups=[[0,1]] channel=2\n  return "
      "%1\n";
  EXPECT_EQ(Outputs(text, {{}, {Of({DataType::kInt32, {1}}, {7})}}),
            "ranks wait for ever: rank 0 in %0 recv, rank 1 in %1 all_reduce");
}

}  // namespace
}  // namespace axccl::program
