#include "tests/exec/counting.h"

#include <gtest/gtest.h>

namespace axccl::exec {
namespace {

Counter* g_counter = nullptr;

}  // namespace

Counter::Counter(Ensemble* ensemble) : by_rank_(static_cast<size_t>(ensemble->ranks())) {
  for (int rank = 0; rank < ensemble->ranks(); ++rank) {
    const TwiceMapped& heap = ensemble->process(rank).heap();
    if (!heaps_.empty() && heaps_.back().own == heap.own()) continue;  // the same process
    const auto counts = [&] { return Counts(static_cast<uint8_t*>(std::calloc(heap.bytes(), 1)), &std::free); };
    heaps_.push_back({heap.own(), heap.peer(), heap.bytes(), counts(), counts()});
  }
  g_counter = this;
}

Counter::~Counter() { g_counter = nullptr; }

void Counter::Clear() {
  by_rank_.assign(by_rank_.size(), Volume());
  flat_calls_ = 0;
}

Volume Counter::total() const {
  Volume total;
  for (const Volume& v : by_rank_) total.read += v.read, total.written += v.written;
  return total;
}

int Counter::Seen(const void* own, bool writes) const {
  for (const Heap& heap : heaps_) {
    const auto at = static_cast<size_t>(static_cast<const std::byte*>(own) - heap.own);
    if (own >= heap.own && at < heap.bytes) return writes ? heap.writes[at] : heap.reads[at];
  }
  ADD_FAILURE() << own << " is in no heap";
  return -1;
}

void Counter::Touch(const std::byte* p, size_t bytes, bool writes) {
  Volume& volume = by_rank_[rank_];
  (writes ? volume.written : volume.read) += bytes;
  for (Heap& heap : heaps_) {
    for (const std::byte* base : {heap.own, heap.peer}) {
      if (p < base || p + bytes > base + heap.bytes) continue;
      for (size_t i = 0; i < bytes; ++i) ++(writes ? heap.writes : heap.reads)[static_cast<size_t>(p - base) + i];
      return;
    }
  }
}

void Counter::CountBox(const kernels::BoxRange& range, const kernels::BoxOperand& operand, size_t element_bytes,
                       bool writes) {
  const auto* const data = static_cast<const std::byte*>(operand.data);
  for (uint64_t i = 0; i < range.count; ++i) {
    auto at = static_cast<int64_t>(i);
    if (operand.strides != nullptr) {
      at = 0;
      uint64_t rest = range.begin + i;
      for (int d = range.num_dims; d-- > 0; rest /= static_cast<uint64_t>(range.sizes[d]))
        at += static_cast<int64_t>(rest % static_cast<uint64_t>(range.sizes[d])) * operand.strides[d];
    }
    Touch(data + at * static_cast<int64_t>(element_bytes), element_bytes, writes);
  }
}

}  // namespace axccl::exec

// The linker directs calls of the movers here (--wrap), and gives the movers themselves the other names.

#define AXCCL_COPY_BOX(prefix) prefix##_ZN5axccl7kernels7CopyBoxERKNS0_8BoxRangeEPKNS0_10BoxOperandEiRS5_mb
#define AXCCL_COPY_BOXES(prefix) prefix##_ZN5axccl7kernels9CopyBoxesERKNS0_8BoxRangeEPKNS0_10BoxOperandES6_imb
#define AXCCL_REDUCE_BOX(prefix) prefix##_ZN5axccl7kernels9ReduceBoxERKNS0_16BoxReduceRequestE
#define AXCCL_REDUCE_BOXES(prefix) prefix##_ZN5axccl7kernels11ReduceBoxesERKNS0_16BoxReduceRequestE
#define AXCCL_COPY(prefix) prefix##_ZN5axccl7kernels4CopyEPKPviPKvmb
#define AXCCL_REDUCE(prefix) prefix##_ZN5axccl7kernels6ReduceERKNS0_13ReduceRequestE

using axccl::exec::g_counter;
using axccl::kernels::BoxOperand;
using axccl::kernels::BoxRange;
using axccl::kernels::BoxReduceRequest;
using axccl::kernels::ReduceRequest;

extern "C" {

void AXCCL_COPY_BOX(__real_)(const BoxRange&, const BoxOperand*, int, const BoxOperand&, size_t, bool);
void AXCCL_COPY_BOXES(__real_)(const BoxRange&, const BoxOperand*, const BoxOperand*, int, size_t, bool);
void AXCCL_REDUCE_BOX(__real_)(const BoxReduceRequest&);
void AXCCL_REDUCE_BOXES(__real_)(const BoxReduceRequest&);
void AXCCL_COPY(__real_)(void* const*, int, const void*, size_t, bool);
void AXCCL_REDUCE(__real_)(const ReduceRequest&);

void AXCCL_COPY_BOX(__wrap_)(const BoxRange& range, const BoxOperand* dst, int num_dst, const BoxOperand& src,
                             size_t element_bytes, bool non_temporal) {
  if (g_counter != nullptr) {
    g_counter->CountBox(range, src, element_bytes, false);
    for (int d = 0; d < num_dst; ++d) g_counter->CountBox(range, dst[d], element_bytes, true);
  }
  AXCCL_COPY_BOX(__real_)(range, dst, num_dst, src, element_bytes, non_temporal);
}

void AXCCL_COPY_BOXES(__wrap_)(const BoxRange& range, const BoxOperand* dst, const BoxOperand* src, int num,
                               size_t element_bytes, bool non_temporal) {
  for (int i = 0; g_counter != nullptr && i < num; ++i) {
    g_counter->CountBox(range, src[i], element_bytes, false);
    g_counter->CountBox(range, dst[i], element_bytes, true);
  }
  AXCCL_COPY_BOXES(__real_)(range, dst, src, num, element_bytes, non_temporal);
}

void AXCCL_REDUCE_BOX(__wrap_)(const BoxReduceRequest& request) {
  const size_t element_bytes = axccl::ElementSize(request.type);
  for (int s = 0; g_counter != nullptr && s < request.num_src; ++s)
    g_counter->CountBox(request.range, request.src[s], element_bytes, false);
  for (int d = 0; g_counter != nullptr && d < request.num_dst; ++d)
    g_counter->CountBox(request.range, request.dst[d], element_bytes, true);
  AXCCL_REDUCE_BOX(__real_)(request);
}

void AXCCL_REDUCE_BOXES(__wrap_)(const BoxReduceRequest& requests) {
  const size_t element_bytes = axccl::ElementSize(requests.type);
  for (int s = 0; g_counter != nullptr && s < requests.num_dst * requests.num_src; ++s)
    g_counter->CountBox(requests.range, requests.src[s], element_bytes, false);
  for (int d = 0; g_counter != nullptr && d < requests.num_dst; ++d)
    g_counter->CountBox(requests.range, requests.dst[d], element_bytes, true);
  AXCCL_REDUCE_BOXES(__real_)(requests);
}

void AXCCL_COPY(__wrap_)(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal) {
  if (g_counter != nullptr) g_counter->CountFlat();
  AXCCL_COPY(__real_)(dst, num_dst, src, bytes, non_temporal);
}

void AXCCL_REDUCE(__wrap_)(const ReduceRequest& request) {
  if (g_counter != nullptr) g_counter->CountFlat();
  AXCCL_REDUCE(__real_)(request);
}

}  // extern "C"
