#include "tools/softgpu/cuda/operation.h"

#include <atomic>
#include <cstring>

#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {

namespace {

// Words of 4 bytes may be flags between streams, kernels and the host. So operations on few of them read and write each
// as a whole, and order it with what they do before and after.
constexpr size_t kFewWords = 64;
template <typename Word>
std::atomic_ref<Word> WordAt(uint64_t address) {
  return std::atomic_ref<Word>(*reinterpret_cast<Word*>(address));
}
bool IsWord(uint64_t address) { return address % sizeof(uint32_t) == 0; }

}  // namespace

void Copy(const CopyShape& shape) {
  const bool few = shape.width <= kFewWords * sizeof(uint32_t) && shape.height == 1 && shape.depth == 1;
  if (few && IsWord(shape.to) && IsWord(shape.from) && IsWord(shape.width)) {
    for (size_t at = 0; at < shape.width; at += sizeof(uint32_t)) {
      const uint32_t word = WordAt<uint32_t>(shape.from + at).load(std::memory_order_acquire);
      WordAt<uint32_t>(shape.to + at).store(word, std::memory_order_release);
    }
    return;
  }
  auto* to = reinterpret_cast<char*>(shape.to);
  const auto* from = reinterpret_cast<const char*>(shape.from);
  for (size_t layer = 0; layer < shape.depth; ++layer) {
    for (size_t row = 0; row < shape.height; ++row) {
      std::memmove(to + layer * shape.to_slice + row * shape.to_pitch,
                   from + layer * shape.from_slice + row * shape.from_pitch, shape.width);
    }
  }
}

namespace {

void Fill(const FillShape& shape) {
  for (size_t row = 0; row < shape.height; ++row) {
    char* to = reinterpret_cast<char*>(shape.to) + row * shape.pitch;
    if (shape.element == 1) {
      std::memset(to, static_cast<int>(shape.value), shape.width);
      continue;
    }
    if (shape.element == sizeof(uint32_t) && IsWord(shape.to) && shape.height == 1 && shape.width <= kFewWords) {
      for (size_t i = 0; i < shape.width; ++i)
        WordAt<uint32_t>(shape.to + i * sizeof(uint32_t)).store(shape.value, std::memory_order_release);
      continue;
    }
    for (size_t i = 0; i < shape.width; ++i) std::memcpy(to + i * shape.element, &shape.value, shape.element);
  }
}

template <typename Word>
bool Holds(Word found, Word wanted, unsigned flags) {
  switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Word>>(found - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (found & wanted) != 0;
    default:
      return static_cast<Word>(~(found | wanted)) != 0;
  }
}

class MemoryWordsWork : public Work {
 public:
  MemoryWordsWork(ContextPtr context, const std::vector<CUstreamBatchMemOpParams>& words)
      : context_(std::move(context)), words_(words) {}

  Progress Advance() override {
    if (context_->error() != CUDA_SUCCESS) return Progress::kDone;
    for (; next_ < words_.size(); ++next_) {
      if (!Do(words_[next_])) return Progress::kWaiting;
    }
    return Progress::kDone;
  }

 private:
  // Returns false if it must wait.
  static bool Do(const CUstreamBatchMemOpParams& word) {
    switch (word.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return Holds<uint32_t>(WordAt<uint32_t>(word.waitValue.address).load(std::memory_order_acquire),
                               word.waitValue.value, word.waitValue.flags);
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return Holds<uint64_t>(WordAt<uint64_t>(word.waitValue.address).load(std::memory_order_acquire),
                               word.waitValue.value64, word.waitValue.flags);
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        WordAt<uint32_t>(word.writeValue.address).store(word.writeValue.value, std::memory_order_release);
        return true;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        WordAt<uint64_t>(word.writeValue.address).store(word.writeValue.value64, std::memory_order_release);
        return true;
      default:  // barriers and flushes: the order of the others is enough
        return true;
    }
  }

  ContextPtr context_;
  std::vector<CUstreamBatchMemOpParams> words_;
  size_t next_ = 0;
};

}  // namespace

namespace {

bool IsOfPeer(const Context& context, uint64_t address) {
  const std::optional<Range> range = AddressSpace::Get().Find(address);
  return range && range->kind == RangeKind::kDevice && range->device != context.device().ordinal;
}

// Like a broken path between devices: reads give zeros, and writes are lost.
void CopyCorrupted(const Context& context, CopyShape shape) {
  if (IsOfPeer(context, shape.to)) return;
  Copy(shape);
  if (!IsOfPeer(context, shape.from)) return;
  for (size_t layer = 0; layer < shape.depth; ++layer) {
    for (size_t row = 0; row < shape.height; ++row)
      std::memset(reinterpret_cast<char*>(shape.to) + layer * shape.to_slice + row * shape.to_pitch, 0, shape.width);
  }
}

}  // namespace

std::unique_ptr<Work> CopyOperation::Begin() const {
  if (Knobs().corrupt_peer) {
    return std::make_unique<FunctionWork>(context_,
                                          [shape = shape_, context = context_] { CopyCorrupted(*context, shape); });
  }
  return std::make_unique<FunctionWork>(context_, [shape = shape_] { Copy(shape); });
}

std::unique_ptr<Work> FillOperation::Begin() const {
  return std::make_unique<FunctionWork>(context_, [shape = shape_] { Fill(shape); });
}

std::unique_ptr<Work> HostOperation::Begin() const {
  return std::make_unique<FunctionWork>(
      context_, [function = function_, data = data_] { function(data); }, context_->device().ordinal);
}

std::unique_ptr<Work> MemoryWordsOperation::Begin() const {
  return std::make_unique<MemoryWordsWork>(context_, words_);
}

}  // namespace softgpu::cuda
