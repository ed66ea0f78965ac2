// Memory that serves again, and how much of it is kept.
#include "src/program/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "src/program/tensor.h"

namespace axccl::program {
namespace {

TEST(BufferPool, GivesTheSameMemoryAgain) {
  BufferPool pool;
  std::vector<uint8_t> first = pool.Take(100);
  std::fill(first.begin(), first.end(), uint8_t{7});
  const uint8_t* const memory = first.data();
  pool.Put(std::move(first));
  EXPECT_EQ(pool.kept_bytes(), 100u);
  const std::vector<uint8_t> again = pool.Take(100);
  EXPECT_EQ(again.data(), memory);
  EXPECT_EQ(again, std::vector<uint8_t>(100));
  EXPECT_EQ(pool.reused(), 1u);
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(BufferPool, KeepsNoMoreThanWasGivenOutAtATime) {
  BufferPool pool;
  std::vector<std::vector<uint8_t>> buffers;
  for (const size_t bytes : {10, 20, 30}) buffers.push_back(pool.Take(bytes));
  for (std::vector<uint8_t>& buffer : buffers) pool.Put(std::move(buffer));
  EXPECT_EQ(pool.kept_bytes(), 60u);
  pool.Put(std::vector<uint8_t>(1));  // from elsewhere
  EXPECT_EQ(pool.kept_bytes(), 60u);
  std::vector<uint8_t> other = pool.Take(25);  // the one of 30 makes room
  EXPECT_EQ(pool.kept_bytes(), 30u);
  pool.Put(std::move(other));
  EXPECT_EQ(pool.kept_bytes(), 55u);
  EXPECT_EQ(pool.Take(70).size(), 70u);
  EXPECT_EQ(pool.kept_bytes(), 0u);
}

TEST(BufferPool, ServesTensorsOfAThreadWhileItIsUsed) {
  BufferPool pool, inner;
  const TensorType type{DataType::kFloat32, {2, 3}};
  EXPECT_EQ(BufferPool::OfThread(), nullptr);
  {
    const BufferPool::Use use(&pool);
    Tensor tensor = Tensor::Zeros(type);
    tensor.bytes[5] = 1;
    pool.Put(std::move(tensor.bytes));
    {
      const BufferPool::Use other(&inner);
      (void)Tensor::Zeros(type);
      EXPECT_EQ(inner.reused() + pool.reused(), 0u);
    }
    EXPECT_EQ(Tensor::Zeros(type).bytes, std::vector<uint8_t>(24));
    EXPECT_EQ(pool.reused(), 1u);
  }
  EXPECT_EQ(BufferPool::OfThread(), nullptr);
  (void)Tensor::Zeros(type);
  EXPECT_EQ(pool.reused(), 1u);
}

}  // namespace
}  // namespace axccl::program
