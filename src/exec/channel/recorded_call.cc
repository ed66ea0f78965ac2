#include "src/exec/channel/recorded_call.h"

#include <bit>

namespace axccl::exec {

RecordedCall::RecordedCall(const std::atomic<uint64_t>* words) {
  const auto word = [&](int w) { return words[w].load(std::memory_order_relaxed); };
  packed = word(OpRecord::kCall);
  count = word(OpRecord::kCount);
  plan = word(OpRecord::kPlan);
  on_views = (packed & Call::kOnViews) != 0;
  if (!on_views) return;
  operands = word(OpRecord::kOperands);
  hash = word(OpRecord::kHash);
  scale = std::bit_cast<double>(word(OpRecord::kScale));
  slices = word(OpRecord::kSlices);
  const uint64_t type_word = word(OpRecord::kType);
  readable = form.Unpack(word(OpRecord::kForm)) && type_word < kNumDataTypes;
  if (readable) type = static_cast<DataType>(type_word);
  for (int d = 0; readable && d < form.shape.dims; ++d)
    form.shape.sizes[d] = static_cast<int64_t>(word(OpRecord::kSizes + d));
}

void RecordedCall::WriteForm(const ViewList& views, uint32_t hash, std::atomic<uint64_t>* words) {
  const auto set = [words](int word, uint64_t value) { words[word].store(value, std::memory_order_relaxed); };
  const ViewOperand& first = views.operands[0];
  set(OpRecord::kOperands, views.operands.size());
  set(OpRecord::kHash, hash);
  set(OpRecord::kScale, std::bit_cast<uint64_t>(views.scale));
  set(OpRecord::kForm, first.form.Packed());
  set(OpRecord::kSlices, views.slices.Packed());
  set(OpRecord::kType, static_cast<uint64_t>(first.type));
  for (int d = 0; d < first.form.shape.dims; ++d)
    set(OpRecord::kSizes + d, static_cast<uint64_t>(first.form.shape.sizes[d]));
}

void RecordedCall::Write(const Call& call, std::atomic<uint64_t>* words) {
  words[OpRecord::kCall].store(call.Named(), std::memory_order_relaxed);
  words[OpRecord::kCount].store(call.count, std::memory_order_relaxed);
  words[OpRecord::kPlan].store(0, std::memory_order_relaxed);
  if (call.views != nullptr) WriteForm(*call.views, call.views->Hash(), words);
}

std::string RecordedCall::Text() const {
  if (!readable) return "unreadable call";
  return on_views ? DescribeCall(packed, operands, form, type, scale, Slices::Unpack(slices))
                  : DescribeCall(packed, count);
}

const char* RecordedCall::Hidden() const {
  const bool permutes = static_cast<Call::Form>(packed >> Call::kFormShift & 3) == Call::Form::kPermute;
  return permutes ? ", with other pairs or later operands" : ", and later operands differ";
}

}  // namespace axccl::exec
