// The reference executor gives what JAX gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/program/reference.h"
#include "src/program/reference/scalar.h"
#include "src/program/stablehlo.h"
#include "src/program/text.h"
#include "tests/harness/vectors.h"
#include "tests/program/jax_programs.h"

namespace axccl::program {
namespace {

std::vector<double> Numbers(const Tensor& tensor) {
  std::vector<double> numbers;
  VisitScalar(tensor.type.data_type, [&](auto scalar) {
    for (int64_t i = 0; i < Elements(tensor.type); ++i)
      numbers.push_back(static_cast<double>(scalar.Load(tensor.at(i))));
  });
  return numbers;
}

// Within 1e-5 of the largest element; integers are equal.
void ExpectClose(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(Print(actual.type), Print(expected.type));
  if (!IsFloat(actual.type.data_type)) {
    EXPECT_EQ(actual.bytes, expected.bytes);
    return;
  }
  const std::vector<double> a = Numbers(actual), b = Numbers(expected);
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i]) && std::isfinite(b[i])) << i;
    largest = std::max(largest, std::fabs(b[i]));
    difference = std::max(difference, std::fabs(a[i] - b[i]));
  }
  EXPECT_LE(difference, 1e-5 * largest);
}

class JaxTest : public testing::TestWithParam<std::string> {};

TEST_P(JaxTest, TheReferenceGivesTheSame) {
  if (const std::string missing = harness::VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  const JaxProgram jax = ReadJaxProgram(GetParam());
  const Result<Program> program = ImportStablehlo(jax.text);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Result<std::vector<Tensors>> outputs = RunReference(program.value(), jax.inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  ASSERT_EQ(outputs.value().size(), jax.outputs.size());
  for (size_t rank = 0; rank < jax.outputs.size(); ++rank) {
    ASSERT_EQ(outputs.value()[rank].size(), jax.outputs[rank].size());
    for (size_t i = 0; i < jax.outputs[rank].size(); ++i) {
      SCOPED_TRACE("rank " + std::to_string(rank) + ", output " + std::to_string(i));
      ExpectClose(outputs.value()[rank][i], jax.outputs[rank][i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, JaxTest, testing::ValuesIn(JaxProgramNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace axccl::program
