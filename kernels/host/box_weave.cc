#include "kernels/host/box_weave.h"

#include <algorithm>

#include "kernels/host/box_nest.h"
#include "kernels/host/box_plan.h"
#include "src/base/sizes.h"

namespace axccl::kernels {
namespace {

// Small enough to stay in the first-level cache while the sources stream past.
constexpr size_t kBlockBytes = 8192;
constexpr size_t kMaxPairedRun = 16;

bool SameStrides(const BoxRange& range, const BoxOperand& a, const BoxOperand& b) {
  for (int d = 0; d < range.num_dims; ++d) {
    if (range.sizes[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

}  // namespace

Weave::Weave(const IsaTable& isa, const BoxRange& range, const BoxCopies& copies)
    : isa_(isa), element_bytes_(copies.element_bytes), num_(copies.num) {
  if (num_ < 2 || num_ > kMaxSources) return;
  // Rows of runs, or of single elements.
  const BoxPlan plan = PlanBox(range, {copies.dst, 1, nullptr, 0, element_bytes_});
  if (plan.num_dims > 2) return;
  if (plan.num_dims == 2 && plan.Stride(copies.dst[0], 1, element_bytes_) != static_cast<int64_t>(element_bytes_))
    return;
  const uint64_t elements = plan.num_dims == 2 ? plan.size[1] : 1;
  if (elements > kBlockBytes) return;
  run_ = elements * element_bytes_;
  row_bytes_ = run_ * static_cast<size_t>(num_);
  if (2 * row_bytes_ > kBlockBytes) return;
  if (plan.Stride(copies.dst[0], 0, element_bytes_) != static_cast<int64_t>(row_bytes_)) return;
  if (FindSources(range, copies, elements)) row_elements_ = elements;
}

// Whether the runs of the destinations fill its rows, and the sources consist of rows of runs, too.
bool Weave::FindSources(const BoxRange& range, const BoxCopies& copies, uint64_t elements) {
  to_ = static_cast<char*>(copies.dst[0].data);
  for (int i = 1; i < num_; ++i) to_ = std::min(to_, static_cast<char*>(copies.dst[i].data));
  for (int i = 0; i < num_; ++i) {
    const BoxOperand both[] = {copies.dst[i], copies.src[i]};
    const auto in_row = static_cast<size_t>(static_cast<char*>(both[0].data) - to_);
    if (in_row >= row_bytes_ || in_row % run_ != 0 || !SameStrides(range, copies.dst[0], both[0])) return false;
    const BoxPlan plan = PlanBox(range, {both, 2, nullptr, 0, element_bytes_});
    if (plan.num_dims != (elements > 1 ? 2 : 1)) return false;
    const auto element = static_cast<int64_t>(element_bytes_);
    source_[i] = {static_cast<const char*>(both[1].data), static_cast<int64_t>(in_row),
                  plan.Stride(both[1], 0, element_bytes_),
                  elements > 1 ? plan.Stride(both[1], 1, element_bytes_) : element};
  }
  std::sort(source_, source_ + num_, [](const Source& a, const Source& b) { return a.in_row < b.in_row; });
  auto dense = [this](const Source& s) {
    return s.row_step == static_cast<int64_t>(run_) && s.element_step == static_cast<int64_t>(element_bytes_);
  };
  dense_ = std::all_of(source_, source_ + num_, dense);
  pair_ = dense_ && num_ == 2 && run_ <= kMaxPairedRun && (run_ & (run_ - 1)) == 0;
  return true;
}

// As many rows as a block holds; if the first one begins at a cache line, the last one ends at one.
uint64_t Weave::RowsAtOnce() const {
  const uint64_t rows = kBlockBytes / row_bytes_;
  const uint64_t unit = kCacheLine / std::min(kCacheLine, row_bytes_ & -row_bytes_);
  return rows > unit ? rows - rows % unit : rows;
}

// Two sources form a dimension of two steps, wherever they are.
void Weave::FillPair(char* to, uint64_t begin, uint64_t rows, bool non_temporal) const {
  const int64_t between =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(source_[1].row) - reinterpret_cast<uintptr_t>(source_[0].row));
  const auto run = static_cast<int64_t>(run_);
  CopyNest nest = {to, source_[0].row + begin * run_, run_, non_temporal, 2, {{rows, 2 * run, run}, {2, run, between}}};
  RunNest(isa_, &nest);
}

void Weave::Fill(char* to, uint64_t begin, uint64_t rows) const {
  const auto first = static_cast<int64_t>(begin);
  const auto row = static_cast<int64_t>(row_bytes_);
  if (pair_) return FillPair(to, begin, rows, false);
  for (int i = 0; i < num_; ++i) {
    const Source& s = source_[i];
    CopyNest nest = {to + s.in_row, s.row + first * s.row_step, element_bytes_, false, 2, {}};
    nest.dim[0] = {rows, row, s.row_step};
    nest.dim[1] = {run_ / element_bytes_, static_cast<int64_t>(element_bytes_), s.element_step};
    RunNest(isa_, &nest);
  }
}

void Weave::Run(uint64_t begin, uint64_t end, bool non_temporal) const {
  alignas(kCacheLine) char block[kBlockBytes];
  if (pair_ && reinterpret_cast<uintptr_t>(to_) % row_bytes_ == 0) {
    char* const to = to_ + begin * row_bytes_;
    const uint64_t to_line = -reinterpret_cast<uintptr_t>(to) % kCacheLine / row_bytes_;
    const uint64_t head = std::min(to_line, end - begin);
    if (head > 0) FillPair(to, begin, head, false);
    if (head < end - begin) FillPair(to + head * row_bytes_, begin + head, end - begin - head, non_temporal);
    return;
  }
  const uint64_t most = RowsAtOnce();
  for (uint64_t row = begin, rows; row < end; row += rows) {
    char* const to = to_ + row * row_bytes_;
    rows = std::min(most, end - row);
    if (!non_temporal) {
      Fill(to, row, rows);
      continue;
    }
    Fill(block, row, rows);
    const uint64_t next = row + rows;
    const char* place[kMaxSources];
    for (int i = 0; i < num_; ++i) place[i] = source_[i].row + static_cast<int64_t>(next) * source_[i].row_step;
    isa_.stream(to, block, rows * row_bytes_, {place, num_, dense_ ? std::min(most, end - next) * run_ : 0});
  }
}

}  // namespace axccl::kernels
