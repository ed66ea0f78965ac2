// The fast local operations give what the reference gives, bit for bit: over random operations, and over shapes that
// are large enough for tiles and rows that are added together. Products are compared with loops that add in the
// reference's order, so only what the operands' layouts become is tested; and with OpenBLAS where it is installed.
#include "src/program/fast/fast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/program/check.h"
#include "src/program/kinds.h"
#include "src/program/reference.h"
#include "src/program/reference/scalar.h"
#include "src/program/text.h"
#include "tests/harness/random.h"
#include "tests/program/random_body.h"
#include "tests/program/random_run.h"
#include "tools/axccl-program/blas.h"
#include "tools/axccl-program/compare.h"

namespace axccl::program {
namespace {

template <class T>
void PlainProduct(int, int transpose_a, int transpose_b, int m, int n, int k, T, const T* a, int lda, const T* b,
                  int ldb, T, T* c, int ldc) {
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      T sum = 0;
      for (int i = 0; i < k; ++i) {
        const T x = transpose_a == 112 ? a[i * lda + row] : a[row * lda + i];
        sum += x * (transpose_b == 112 ? b[column * ldb + i] : b[i * ldb + column]);
      }
      c[row * ldc + column] = sum;
    }
  }
}

constexpr Products kPlainProducts = {PlainProduct<float>, PlainProduct<double>};

// Every local operation of the program, on the operands that the reference has for it. Returns what differs.
std::string FastDifference(const Program& program, const std::vector<Tensors>& inputs, const Products& products,
                           double tolerance, int* compared) {
  std::string difference;
  std::unordered_map<Id, Tensor> values;
  for (size_t i = 0; i < inputs[0].size(); ++i) values[program.parts[0].function.arguments[i].id] = inputs[0][i];
  const Observer observer = [&](int, const Operation& operation, size_t i, const Tensor& value) {
    values[operation.results[i].id] = value;
    if (!difference.empty() || operation.kind >= OpKind::kAllGather) return;
    std::vector<const Tensor*> operands;
    for (const Id id : operation.operands) operands.push_back(&values.at(id));
    difference = tools::Difference(ComputeFast(operation, operands, products), value, tolerance);
    if (!difference.empty()) difference = std::string(InfoOf(operation.kind).name) + ": " + difference;
    ++*compared;
  };
  const Result<std::vector<Tensors>> outputs = RunReference(program, inputs, observer);
  return outputs.ok() ? difference : std::string(outputs.status().message());
}

// `body`: lines without their indentation, divided by '|'.
Program OfOneRank(const std::string& body) {
  std::string text = "axccl-program 1\nranks 1\npart main on [0]\n  ";
  for (const char c : body) text += c == '|' ? std::string("\n  ") : std::string(1, c);
  const Result<Program> program = Parse(text + "\n");
  EXPECT_TRUE(program.ok()) << program.status().message() << "\n" << text;
  if (!program.ok()) return {};
  const Status right = Check(program.value());
  EXPECT_TRUE(right.ok()) << right.message() << "\n" << text;
  return program.value();
}

TEST(FastTest, GivesTheReferencesBits) {
  int compared = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    harness::Random random(harness::Scramble(harness::Seed(), i));
    PartMaker maker("main", {0}, &random);
    for (int n = 0; n < 40; ++n) maker.Compute();
    Program program{1, {maker.End()}};
    const std::vector<Tensors> inputs = RandomRunInputs(program, &random);
    EXPECT_EQ(FastDifference(program, inputs, kPlainProducts, 0, &compared), "")
        << "AXCCL_TEST_SEED=" << harness::Seed() << " program " << i << "\n"
        << Print(program);
  }
  EXPECT_GT(compared, 10000);
}

std::string ListText(const Ints& list) {
  std::string text;
  for (const int64_t n : list) text += (text.empty() ? "" : ",") + std::to_string(n);
  return "[" + text + "]";
}

Ints Picked(const Ints& from, const Ints& dims) {
  Ints picked;
  for (const int64_t d : dims) picked.push_back(from[static_cast<size_t>(d)]);
  return picked;
}

TEST(FastTest, MovesAndReducesLargeShapes) {
  int compared = 0;
  constexpr const char* kTypes[] = {"f64", "f32", "bf16", "i8", "i1", "u16"};
  for (uint64_t i = 0; i < 60; ++i) {
    harness::Random random(harness::Scramble(harness::Seed() + 1, i));
    const std::string type = kTypes[i % 6], fold = random.OneIn(2) ? "add" : "max";
    Ints dims, order, reduced, kept;
    for (int64_t d = 0; d < 3; ++d) {
      dims.push_back(static_cast<int64_t>(random.OneIn(8) ? 1 : 1 + random.Below(75)));
      order.push_back(d);
      (random.OneIn(2) ? reduced : kept).push_back(d);
    }
    Shuffle(&order, &random);
    const std::string whole = type + ListText(dims), turned = type + ListText(Picked(dims, order));
    const Program program =
        OfOneRank("argument %0 " + whole + "|argument %1 " + type + "[]|%2 " + turned +
                  " = transpose %0 dims=" + ListText(order) + "|%3 " + type + ListText(Picked(dims, kept)) +
                  " = reduce %0 %1 fold=" + fold + " dims=" + ListText(reduced) + "|%4 " + whole +
                  " = broadcast_in_dim %3 dims=" + ListText(kept) + "|%5 " + turned +
                  " = reverse %2 dims=" + ListText(reduced) + "|%6 " + whole + " = maximum %0 %4|return %6");
    EXPECT_EQ(FastDifference(program, RandomRunInputs(program, &random), kPlainProducts, 0, &compared), "")
        << "AXCCL_TEST_SEED=" << harness::Seed() << " program " << i << "\n"
        << Print(program);
  }
  EXPECT_EQ(compared, 60 * 5);
}

// Dimensions are in a random order: batch, rows or columns, and terms; two of each, so that they join or do not.
Program RandomProduct(const std::string& type, harness::Random* random) {
  const auto size = [&] { return static_cast<int64_t>(1 + random->Below(random->OneIn(3) ? 2 : 9)); };
  const Ints batch = {size(), size()}, terms = {size(), size()};
  std::string operands, lists[2][2];
  Ints result = batch;
  for (int side = 0; side < 2; ++side) {
    const Ints own = {size(), size()};
    Ints sizes = batch, order = {0, 1, 2, 3, 4, 5};
    sizes.insert(sizes.end(), terms.begin(), terms.end());
    sizes.insert(sizes.end(), own.begin(), own.end());
    if (!random->OneIn(4)) Shuffle(&order, random);
    const auto at = [&](int64_t d) { return std::find(order.begin(), order.end(), d) - order.begin(); };
    const Ints dims = Picked(sizes, order);
    for (const int64_t d : order) {
      if (d >= 4) result.push_back(sizes[static_cast<size_t>(d)]);
    }
    operands += "argument %" + std::to_string(side) + " " + type + ListText(dims) + "|";
    lists[side][0] = ListText({at(0), at(1)});
    lists[side][1] = ListText({at(2), at(3)});
  }
  return OfOneRank(operands + "%2 " + type + ListText(result) +
                   " = dot_general %0 %1 lhs_batching_dims=" + lists[0][0] + " rhs_batching_dims=" + lists[1][0] +
                   " lhs_contracting_dims=" + lists[0][1] + " rhs_contracting_dims=" + lists[1][1] + "|return %2");
}

// Numbers are eighths up to 4, or so: their products and sums are exact.
Tensors SmallNumbers(const Program& program, harness::Random* random) {
  Tensors inputs;
  for (const Value& argument : program.parts[0].function.arguments) {
    inputs.push_back(Tensor::Zeros(argument.type));
    for (int64_t i = 0; i < Elements(argument.type); ++i) {
      const auto number = static_cast<float>(random->Below(17)) / 4 - 2;
      if (argument.type.data_type == DataType::kFloat64) {
        Scalar<double>::Store(number, inputs.back().at(i));
      } else {
        Scalar<float>::Store(number, inputs.back().at(i));
      }
    }
  }
  return inputs;
}

void CompareProducts(const Products& products) {
  int compared = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    harness::Random random(harness::Scramble(harness::Seed() + 2, i));
    const Program program = RandomProduct(i % 2 == 0 ? "f32" : "f64", &random);
    EXPECT_EQ(FastDifference(program, {SmallNumbers(program, &random)}, products, 0, &compared), "")
        << "AXCCL_TEST_SEED=" << harness::Seed() << " program " << i << "\n"
        << Print(program);
  }
  EXPECT_EQ(compared, 400);
}

TEST(FastTest, HandsProductsToTheLibrary) { CompareProducts(kPlainProducts); }

TEST(FastTest, MultipliesByOpenBlas) {
  const Result<Products> blas = tools::LoadBlas();
  if (!blas.ok()) GTEST_SKIP() << blas.status().message();
  CompareProducts(blas.value());
  const Program program = OfOneRank(
      "argument %0 f32[70,130]|argument %1 f32[130,50]|argument %2 f64[90,130]|argument %3 f64[90,60]|%4 f32[70,50] = "
      "dot %0 %1|%5 f64[130,60] = dot_general %2 %3 lhs_batching_dims=[] rhs_batching_dims=[] "
      "lhs_contracting_dims=[0] rhs_contracting_dims=[0]|return %4 %5");
  harness::Random random(harness::Seed());
  Tensors inputs = SmallNumbers(program, &random);
  for (Tensor& input : inputs) {  // thirds, whose sums are rounded
    for (int64_t i = 0; i < Elements(input.type); ++i) {
      if (input.type.data_type == DataType::kFloat64) {
        Scalar<double>::Store(Scalar<double>::Load(input.at(i)) / 3, input.at(i));
      } else {
        Scalar<float>::Store(Scalar<float>::Load(input.at(i)) / 3, input.at(i));
      }
    }
  }
  int compared = 0;
  EXPECT_EQ(FastDifference(program, {inputs}, blas.value(), 1e-5, &compared), "");
  EXPECT_EQ(compared, 2);
}

}  // namespace
}  // namespace axccl::program
