// Collective calls on matrices in device memory, with any order of dimensions and gaps, and what they bring.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/collectives/owned_view.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/gpu_driver.h"

namespace axccl::tests {

// One allocation for all matrices of a test: allocating and freeing may wait for kernels of other ranks.
class DeviceRoom {
 public:
  // `managed`: memory that cannot be shared with other processes.
  explicit DeviceRoom(size_t bytes = size_t{16} << 20, bool managed = false) : bytes_(bytes) {
    constexpr unsigned kGlobal = 1;
    EXPECT_EQ(managed ? driver_->allocate_managed(&memory_, bytes, kGlobal) : driver_->allocate(&memory_, bytes), 0);
  }
  ~DeviceRoom() { EXPECT_EQ(driver_->free_memory(memory_), 0); }
  DeviceRoom(const DeviceRoom&) = delete;
  DeviceRoom& operator=(const DeviceRoom&) = delete;

  uint64_t Take(size_t bytes) {
    const uint64_t taken = memory_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    EXPECT_LE(used_, bytes_);
    return taken;
  }
  void Reset() { used_ = 0; }

 private:
  const harness::GpuDriver* const driver_ = harness::EnterGpu();
  const size_t bytes_;
  uint64_t memory_ = 0;
  size_t used_ = 0;
};

inline int32_t ValueOf(int rank, int64_t row, int64_t column, int round) {
  return static_cast<int32_t>(100'000 * rank + 100 * row + column + 50'000 * round);
}

// In memory row by row, or column by column if `turned`, with gaps between these, and a word that is not its own behind
// them.
class Matrix {
 public:
  Matrix(DeviceRoom* room, int64_t rows, int64_t columns, bool turned, int64_t gap)
      : rows_(rows),
        columns_(columns),
        turned_(turned),
        pitch_((turned ? rows : columns) + gap),
        words_(static_cast<size_t>(pitch_ * (turned ? columns : rows)) + 1),
        memory_(room->Take(words_.size() * sizeof(int32_t))) {
    Forget();
  }

  void Fill(int rank, int round) {
    for (int64_t r = 0; r < rows_; ++r)
      for (int64_t c = 0; c < columns_; ++c) At(r, c) = ValueOf(rank, r, c, round);
    Upload();
  }
  void Forget() {
    std::fill(words_.begin(), words_.end(), kSentinel);
    Upload();
  }
  // How many numbers are not what they should be (null: untouched), and other words that have changed. Forgets all.
  int64_t CountWrong(const std::function<int32_t(int64_t, int64_t)>& expected) {
    EXPECT_EQ(harness::EnterGpu()->copy_to_host(words_.data(), memory_, words_.size() * sizeof(int32_t)), 0);
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c)
        wrong += std::exchange(At(r, c), kSentinel) != (expected != nullptr ? expected(r, c) : kSentinel);
    }
    for (const int32_t word : words_) wrong += word != kSentinel;
    Forget();
    return wrong;
  }
  View view() {
    return View(reinterpret_cast<void*>(memory_), {rows_, columns_},
                turned_ ? std::vector<int64_t>{1, pitch_} : std::vector<int64_t>{pitch_, 1});
  }

 private:
  static constexpr int32_t kSentinel = -7;

  int32_t& At(int64_t row, int64_t column) {
    return words_[static_cast<size_t>(turned_ ? column * pitch_ + row : row * pitch_ + column)];
  }
  void Upload() {
    EXPECT_EQ(harness::EnterGpu()->copy_to_device(memory_, words_.data(), words_.size() * sizeof(int32_t)), 0);
  }

  const int64_t rows_, columns_;
  const bool turned_;
  const int64_t pitch_;
  std::vector<int32_t> words_;
  const uint64_t memory_;
};

// How a rank's matrices lie in memory: others on each rank.
struct Form {
  bool in_turned, out_turned;
  int64_t in_gap, out_gap;

  static Form Of(int rank, int salt) {
    const int bits = 5 * rank + 3 * salt;
    return {(bits & 1) != 0, (bits & 2) != 0, bits / 4 % 2, bits / 8 % 2};
  }
};

// One call of a kind on a matrix, and what it brings.
struct MatrixCall {
  const char* name;
  int64_t in_rows, in_columns, out_rows, out_columns;
  std::function<ncclResult_t(const axcclView_t*, const axcclView_t*)> call;
  std::function<int32_t(int64_t, int64_t)> expected;  // null: this rank gets nothing
};

// A group of `n` ranks, and what its calls need.
struct MatrixGroup {
  axcclChannel_t channel;
  int n, rank;
  int64_t rows, columns;  // of a block
  axcclStream_t stream;

  int32_t SumOf(int64_t row, int64_t column, int round) const {
    int32_t sum = 0;
    for (int r = 0; r < n; ++r) sum += ValueOf(r, row, column, round);
    return sum;
  }

  // The calls are in this order.
  enum : size_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kGather, kScatter, kReduce };
  std::vector<MatrixCall> Calls(int round) const {
    using In = const axcclView_t*;
    const MatrixGroup g = *this;
    const int root = n - 1;
    const cudaStream_t on = harness::Cuda(stream);
    const auto at_root = [&](std::function<int32_t(int64_t, int64_t)> f) { return rank == root ? f : nullptr; };
    const auto gathered = [=](int64_t r, int64_t c) {
      return ValueOf(static_cast<int>(c / g.columns), r, c % g.columns, round);
    };
    return {
        {"all_reduce", rows, columns, rows, columns,
         [=](In in, In out) { return axcclAllReduce(1, in, out, ncclSum, g.channel, nullptr, on); },
         [=](int64_t r, int64_t c) { return g.SumOf(r, c, round); }},
        {"all_gather", rows, columns, rows, n * columns,
         [=](In in, In out) { return axcclAllGather(1, in, out, 1, g.channel, nullptr, on); }, gathered},
        {"reduce_scatter", rows, n * columns, rows, columns,
         [=](In in, In out) { return axcclReduceScatter(1, in, out, 1, ncclSum, g.channel, nullptr, on); },
         [=](int64_t r, int64_t c) { return g.SumOf(r, g.rank * g.columns + c, round); }},
        {"all_to_all", rows, n * columns, n * rows, columns,
         [=](In in, In out) { return axcclAllToAll(1, in, out, 1, 0, g.channel, nullptr, on); },
         [=](int64_t r, int64_t c) {
           return ValueOf(static_cast<int>(r / g.rows), r % g.rows, g.rank * g.columns + c, round);
         }},
        {"broadcast", rows, columns, rows, columns,
         [=](In in, In out) { return axcclBroadcast(1, in, out, root, g.channel, nullptr, on); },
         [=](int64_t r, int64_t c) { return ValueOf(root, r, c, round); }},
        {"gather", rows, columns, rows, n * columns,
         [=](In in, In out) { return axcclGather(1, in, out, 1, root, g.channel, nullptr, on); }, at_root(gathered)},
        {"scatter", rows, n * columns, rows, columns,
         [=](In in, In out) { return axcclScatter(1, in, out, 1, root, g.channel, nullptr, on); },
         [=](int64_t r, int64_t c) { return ValueOf(root, r, g.rank * g.columns + c, round); }},
        {"reduce", rows, columns, rows, columns,
         [=](In in, In out) { return axcclReduce(1, in, out, ncclSum, root, g.channel, nullptr, on); },
         [=](int64_t r, int64_t c) { return g.rank == root ? g.SumOf(r, c, round) : 0; }},
    };
  }

  // A message to the next rank and one from the rank before, as one call.
  MatrixCall PassOn(int round) const {
    const MatrixGroup g = *this;
    const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
    const cudaStream_t on = harness::Cuda(stream);
    return {"messages",
            rows,
            columns,
            rows,
            columns,
            [=](const axcclView_t* in, const axcclView_t* out) {
              if (const ncclResult_t begun = ncclGroupStart(); begun != ncclSuccess) return begun;
              EXPECT_OK(axcclSend(1, in, next, g.channel, nullptr, on));
              EXPECT_OK(axcclRecv(1, out, previous, g.channel, nullptr, on));
              return ncclGroupEnd();
            },
            [=](int64_t r, int64_t c) { return ValueOf(previous, r, c, round); }};
  }

  // To the next rank, but from the last one to none, so that the first one gets zeros.
  MatrixCall Permute(int round) const {
    const MatrixGroup g = *this;
    std::vector<int64_t> pairs;
    for (int r = 0; r + 1 < n; ++r) pairs.insert(pairs.end(), {r, r + 1});
    const cudaStream_t on = harness::Cuda(stream);
    return {"permute",
            rows,
            columns,
            rows,
            columns,
            [=](const axcclView_t* in, const axcclView_t* out) {
              return axcclCollectivePermute(1, in, out, pairs.data(), g.n - 1, g.channel, nullptr, on);
            },
            [=](int64_t r, int64_t c) { return g.rank == 0 ? 0 : ValueOf(g.rank - 1, r, c, round); }};
  }
};

}  // namespace axccl::tests
