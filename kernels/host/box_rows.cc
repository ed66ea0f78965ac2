#include "kernels/host/box_rows.h"

#include <algorithm>

#include "kernels/host/box_plan.h"

namespace axccl::kernels {
namespace {

constexpr int kMostOperands = 512;
constexpr uint64_t kMinRow = 1024;

// The rows of a range, and their addresses in each operand.
class Rows {
 public:
  Rows(const BoxRange& range, const BoxOperands& operands)
      : range_(range), operands_(operands), plan_(PlanBox(range, operands)), last_(plan_.num_dims - 1) {}

  bool AreLong() const {
    const size_t element = operands_.element_bytes;
    if (operands_.Num() > kMostOperands || last_ < 1 || plan_.size[last_] * element < kMinRow) return false;
    for (int i = 0; i < operands_.Num(); ++i) {
      if (plan_.Stride(operands_.At(i), last_, element) != static_cast<int64_t>(element)) return false;
    }
    return true;
  }

  // Calls move(at, next, bytes) for each row in logical order, with the offsets of the row in all operands and of the
  // next row; `next` is null if that is elsewhere.
  template <class Move>
  void ForEach(Move move) const;

 private:
  const BoxRange& range_;
  const BoxOperands operands_;
  const BoxPlan plan_;
  const int last_;
};

template <class Move>
void Rows::ForEach(Move move) const {
  const int num = operands_.Num();
  const size_t element = operands_.element_bytes;
  int64_t step[kMostOperands];
  char* places[2][kMostOperands];
  for (int i = 0; i < num; ++i) step[i] = plan_.Stride(operands_.At(i), last_ - 1, element);
  // The range may begin and end within rows, so this moves pieces of rows.
  const uint64_t whole = last_ >= 2 ? plan_.packed[last_ - 2] : ~uint64_t{0};
  for (uint64_t done = 0, count; done < range_.count; done += count) {
    const uint64_t begin = range_.begin + done;
    count = std::min(range_.count - done, whole - begin % whole);
    BoxPieces pieces(plan_, begin, count);
    BoxPiece piece;
    while (pieces.Next(&piece)) {
      uint64_t rows = piece.first == last_ ? 1 : piece.first == last_ - 1 ? piece.extent : plan_.size[last_ - 1];
      const size_t bytes = (piece.first == last_ ? piece.extent : plan_.size[last_]) * element;
      char** at = places[0];
      char** next = places[1];
      for (int i = 0; i < num; ++i) at[i] = piece.Address(plan_, operands_.At(i), element);
      for (; rows > 0; --rows, std::swap(at, next)) {
        for (int i = 0; i < num; ++i) next[i] = at[i] + step[i];
        move(at, rows > 1 ? next : nullptr, bytes);
      }
    }
  }
}

// Sorts in the order in which the first source of each lies in memory. A move of n has `sources` sources each.
void Sort(const BoxOperand* src, int sources, int* order, int num) {
  for (int i = 0; i < num; ++i) order[i] = i;
  std::sort(order, order + num, [=](int a, int b) { return src[a * sources].data < src[b * sources].data; });
}

}  // namespace

bool CopyRows(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies, bool non_temporal) {
  const int num = copies.num;
  const Rows rows(range, {copies.dst, num, copies.src, num, copies.element_bytes});
  if (!rows.AreLong()) return false;
  int order[kMostOperands / 2];
  Sort(copies.src, 1, order, num);
  rows.ForEach([&](char* const* at, char* const*, size_t bytes) {
    for (int j = 0; j < num; ++j) {
      const int i = order[j];
      void* const to = at[i];
      non_temporal ? isa.stream(at[i], at[num + i], bytes, {}) : isa.copy(&to, 1, at[num + i], bytes, false);
    }
  });
  if (non_temporal) isa.stream_fence();
  return true;
}

bool ReduceRows(const IsaTable& isa, const BoxReduceRequest& requests) {
  const int num = requests.num_dst, num_src = requests.num_src;
  const size_t element = ElementSize(requests.type);
  const Rows rows(requests.range, {requests.dst, num, requests.src, num * num_src, element});
  if (!rows.AreLong()) return false;
  int order[kMostOperands / 2];
  Sort(requests.src, num_src, order, num);
  ReduceRequest row = ArithmeticOf(requests);
  row.num_dst = 1;
  row.num_src = num_src;
  rows.ForEach([&](char* const* at, char* const* next, size_t bytes) {
    auto sources = [&](char* const* of, int i) {
      return reinterpret_cast<const void* const*>(of == nullptr ? nullptr : of + num + i * num_src);
    };
    row.count = bytes / element;
    for (int j = 0; j < num; ++j) {
      void* const to = at[order[j]];
      row.dst = &to;
      row.src = sources(at, order[j]);
      if (requests.non_temporal) {
        isa.reduce_row(row, j + 1 < num ? sources(at, order[j + 1]) : sources(next, order[0]), nullptr);
      } else {
        isa.reduce(row);
      }
    }
  });
  if (requests.non_temporal) isa.stream_fence();
  return true;
}

}  // namespace axccl::kernels
