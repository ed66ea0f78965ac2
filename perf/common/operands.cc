#include "perf/common/operands.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "perf/common/types.h"

namespace axccl::perf {
namespace {

// Operands of a list start on cache lines of their own, as allocations do, whatever the size of an element.
constexpr int64_t kOperandAlignment = 64;

int64_t RoundUp(int64_t value) { return (value + kOperandAlignment - 1) / kOperandAlignment * kOperandAlignment; }

// The dimension counted from the front.
size_t FromFront(int dim, const Shape& shape) {
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int>(shape.size()) : dim);
}

bool Splits(ViewKind kind) { return kind == ViewKind::kSplit || kind == ViewKind::kSplitConcat; }
bool Concats(ViewKind kind) { return kind == ViewKind::kConcat || kind == ViewKind::kSplitConcat; }

}  // namespace

void Operands::Layout::Number(const std::vector<int64_t>& strides_or_none) {
  strides = strides_or_none;
  if (!strides.empty()) return;
  strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
}

int64_t Operands::Layout::Elements() const {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

int64_t Operands::Layout::Below() const {
  int64_t below = 0;
  for (size_t d = 0; d < sizes.size(); ++d) below -= std::min<int64_t>((sizes[d] - 1) * strides[d], 0);
  return below;
}

int64_t Operands::Layout::Span() const {
  if (Elements() == 0) return 0;
  int64_t span = 1;
  for (size_t d = 0; d < sizes.size(); ++d) span += std::abs((sizes[d] - 1) * strides[d]);
  return span;
}

Operands::Operands(ViewKind kind, const ViewOptions& options, const std::vector<Shape>& shapes, int ranks, int rank,
                   bool in_place)
    : kind_(kind), ranks_(ranks), rank_(rank), split_dim_(options.SplitDim()), concat_dim_(options.ConcatDim()) {
  for (const Shape& shape : shapes) {
    Layout in{shape, {}};
    Layout out{shape, {}};
    if (Splits(kind)) out.sizes[FromFront(split_dim_, shape)] /= ranks;
    if (Concats(kind)) out.sizes[FromFront(concat_dim_, shape)] *= ranks;
    in.Number(options.strides);
    out.Number(options.out_strides);
    send_span_ = RoundUp(send_span_);
    recv_span_ = RoundUp(recv_span_);
    in.begin = send_span_ + in.Below();
    out.begin = recv_span_ + out.Below();
    send_span_ += in.Span();
    recv_span_ += out.Span();
    if (in_place && kind == ViewKind::kConcat) {
      size_t dim = FromFront(concat_dim_, shape);
      in.strides = out.strides;
      in.begin = out.begin + rank * shape[dim] * out.strides[dim];
    } else if (in_place && kind == ViewKind::kSplit) {
      size_t dim = FromFront(split_dim_, shape);
      out.strides = in.strides;
      out.begin = in.begin + rank * out.sizes[dim] * in.strides[dim];
    }
    in_.push_back(std::move(in));
    out_.push_back(std::move(out));
  }
  for (const Layout& in : in_) in_views_.push_back(ViewOf(in));
  for (const Layout& out : out_) out_views_.push_back(ViewOf(out));
}

Counts Operands::counts() const {
  Counts counts;
  for (const Layout& in : in_) counts.send += static_cast<size_t>(in.Elements());
  for (const Layout& out : out_) counts.recv += static_cast<size_t>(out.Elements());
  counts.argument = counts.send;
  if (kind_ == ViewKind::kSplit) counts.argument = counts.recv;
  if (kind_ == ViewKind::kSplitConcat) counts.argument = counts.send / static_cast<size_t>(ranks_);
  return counts;
}

axcclView_t Operands::ViewOf(const Layout& layout) const {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.num_dims = static_cast<int>(layout.sizes.size());
  view.sizes = layout.sizes.data();
  view.strides = layout.strides.data();
  return view;
}

// Called before every operation of a timed loop, mostly without a change.
void Operands::Aim(const char* send, char* recv, int type) {
  if (send == send_ && recv == recv_ && type == type_) return;
  send_ = send;
  recv_ = recv;
  type_ = type;
  int64_t bytes = static_cast<int64_t>(ElementBytes(type));
  for (size_t k = 0; k < in_.size(); ++k) {
    in_views_[k].data = const_cast<char*>(send) + in_[k].begin * bytes;
    out_views_[k].data = recv + out_[k].begin * bytes;
    in_views_[k].datatype = out_views_[k].datatype = static_cast<ncclDataType_t>(type);
  }
}

// visit(index, offset) for every element in row-major order; the offset is from element (0, 0, ...).
template <class Visit>
void Operands::Walk(const Layout& layout, Visit visit) {
  if (layout.Elements() == 0) return;
  Shape index(layout.sizes.size(), 0);
  for (int64_t offset = 0;;) {
    visit(index, offset);
    size_t d = index.size();
    for (; d > 0; --d) {
      offset += layout.strides[d - 1];
      if (++index[d - 1] < layout.sizes[d - 1]) break;
      offset -= layout.sizes[d - 1] * layout.strides[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

void Operands::Fill(const Sequence& sequence) const {
  size_t bytes = ElementBytes(type_);
  std::vector<char> period(kPeriod * bytes);
  FillSequence(sequence, 0, kPeriod, period.data());
  int64_t first = 0;
  for (size_t k = 0; k < in_.size(); ++k) {
    char* data = static_cast<char*>(in_views_[k].data);
    const int64_t below = in_[k].Below();
    Walk(in_[k], [&](const Shape&, int64_t offset) {
      size_t number = static_cast<size_t>(first + below + offset);
      std::memcpy(data + offset * static_cast<int64_t>(bytes), period.data() + number % kPeriod * bytes, bytes);
    });
    first += in_[k].Span();
  }
}

// The source of an output's element.
struct Operands::Origin {
  int source;
  int64_t number;  // index of its place in the source's input
};

uint64_t Operands::CountWrongOf(size_t operand, int64_t first, const Sequence& sequence, int root) const {
  const Layout& in = in_[operand];
  const Layout& out = out_[operand];
  const int64_t below = in.Below();
  const bool reduced = sequence.op != kMove;
  const size_t split = Splits(kind_) ? FromFront(split_dim_, in.sizes) : 0;
  const size_t concat = Concats(kind_) ? FromFront(concat_dim_, in.sizes) : 0;
  // A block is what one rank contributes to the output.
  const int64_t split_block = Splits(kind_) ? in.sizes[split] / ranks_ : 0;
  const int64_t concat_block = Concats(kind_) ? out.sizes[concat] / ranks_ : 0;
  auto origin_of = [&](const Shape& index) {
    Origin origin{reduced ? kReduced : root, below};
    for (size_t d = 0; d < index.size(); ++d) {
      int64_t i = index[d];
      if (Concats(kind_) && d == concat) {
        origin.source = static_cast<int>(i / concat_block);
        i %= concat_block;
      }
      if (Splits(kind_) && d == split) i += rank_ * split_block;
      origin.number += i * in.strides[d];
    }
    return origin;
  };
  const size_t bytes = ElementBytes(type_);
  const char* data = static_cast<const char*>(out_views_[operand].data);
  std::map<int, std::vector<char>> periods;
  uint64_t wrong = 0;
  Walk(out, [&](const Shape& index, int64_t offset) {
    Origin origin = origin_of(index);
    size_t number = static_cast<size_t>(first + origin.number);
    Sequence expected = sequence;
    expected.source = origin.source;
    std::vector<char>& period = periods[origin.source];
    if (period.empty()) {
      period.resize(kPeriod * bytes);
      FillSequence(expected, 0, kPeriod, period.data());
    }
    const char* at = data + offset * static_cast<int64_t>(bytes);
    if (std::memcmp(at, period.data() + number % kPeriod * bytes, bytes) == 0) return;
    wrong += CountWrong(expected, number, 1, at);  // rounding may be allowed
  });
  return wrong;
}

uint64_t Operands::CountWrongOutputs(const Sequence& sequence, int root) const {
  uint64_t wrong = 0;
  int64_t first = 0;
  for (size_t k = 0; k < in_.size(); ++k) {
    wrong += CountWrongOf(k, first, sequence, root);
    first += in_[k].Span();
  }
  return wrong;
}

}  // namespace axccl::perf
