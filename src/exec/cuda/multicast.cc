#include "src/exec/cuda/multicast.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/switch_fold.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/exec/cuda/agree.h"
#include "src/exec/cuda/interpreter.h"

namespace axccl::exec {

using device::cuda::Driver;
using device::cuda::Scope;
using kernels::cuda::MulticastProbe;

namespace {

constexpr size_t kProbeWords = MulticastProbe::kBytes / sizeof(uint32_t);
using Words = std::vector<uint32_t>;

// What a rank stores to all.
Words PatternOf(size_t rank) {
  Words words;
  for (size_t i = 0; i < kProbeWords; ++i) words.push_back(static_cast<uint32_t>(Mix(Mix(kHashSeed, rank + 1), i)));
  return words;
}

// What the switch adds. All sums are exact.
std::vector<float> NumbersOf(size_t rank) {
  std::vector<float> numbers;
  for (size_t i = 0; i < kProbeWords; ++i) numbers.push_back(static_cast<float>((rank + 1) * (i + 1)));
  return numbers;
}

}  // namespace

Result<bool> CudaMulticast::Share(Setup* setup) {
  AXCCL_ASSIGN_OR_RETURN(const std::string reason, Try(setup));
  if (reason.empty()) {
    AXCCL_INFO(kInit, "rank %zu uses NVLink SHARP, for which each device has %llu bytes", rank_,
               static_cast<unsigned long long>(bytes()));
  } else {
    AXCCL_INFO(kInit, "rank %zu does without NVLink SHARP: %s", rank_, reason.c_str());
  }
  return reason.empty();
}

// All ranks agree after each step, because some steps wait for all ranks to have ended the one before.
Result<std::string> CudaMulticast::Try(Setup* setup) {
  const auto agree = [&](const Status& mine) { return FirstFailure(setup, ranks_, mine); };
  AXCCL_ASSIGN_OR_RETURN(std::string reason, agree(Allow()));
  if (!reason.empty()) return reason;

  cuda_ipc::Handle mine;
  Status made;
  if (rank_ == 0) {
    const Result<cuda_ipc::Handle> created = memory_.object().Create(ranks_, options_.nvls_bytes);
    made = created.status();
    if (created.ok()) mine = created.value();
  }
  std::vector<cuda_ipc::Handle> handles(ranks_);
  AXCCL_RETURN_IF_ERROR(setup->AllGather(&mine, sizeof(mine), handles.data()));
  AXCCL_ASSIGN_OR_RETURN(reason, agree(made.ok() ? memory_.object().Join(handles[0]) : made));
  if (!reason.empty()) return reason;

  AXCCL_ASSIGN_OR_RETURN(reason, agree(Prepare()));
  if (!reason.empty()) return reason;
  AXCCL_ASSIGN_OR_RETURN(reason, agree(Probe()));
  if (!reason.empty()) return reason;
  return agree(Check());
}

// Between two devices, each byte crosses a link as often as without the switch, so there it is used only if it is asked
// for, as in NCCL.
Status CudaMulticast::Allow() const {
  if (options_.nvls == RankOptions::Nvls::kOff)
    return MakeStatus(Code::kInvalidUsage, "NCCL_NVLS_ENABLE=0 on rank %zu", rank_);
  if (options_.nvls == RankOptions::Nvls::kAuto && ranks_ <= 2)
    return MakeStatus(Code::kInvalidUsage, "two ranks gain nothing from it, unless NCCL_NVLS_ENABLE=1");
  return cuda_ipc::MulticastObject::Check(device_);
}

Status CudaMulticast::Prepare() {
  AXCCL_RETURN_IF_ERROR(memory_.Bind());
  const uint64_t test_bytes = At(kPlaces);
  if (memory_.bytes() < test_bytes)
    return MakeStatus(Code::kInvalidUsage, "AXCCL_NVLS_BYTES is too small for %zu ranks", ranks_);
  AXCCL_RETURN_IF_ERROR(device_.Clear(memory_.own(), test_bytes));
  const Words pattern = PatternOf(rank_);
  const std::vector<float> numbers = NumbersOf(rank_);
  AXCCL_RETURN_IF_ERROR(device_.Upload(memory_.own() + At(kPattern), pattern.data(), MulticastProbe::kBytes));
  return device_.Upload(memory_.own() + At(kNumbers), numbers.data(), MulticastProbe::kBytes);
}

// A kernel stores the pattern to all ranks and adds the numbers of all.
Status CudaMulticast::Probe() const {
  AXCCL_ASSIGN_OR_RETURN(const CudaInterpreter* interpreter, CudaInterpreter::Of(device_));
  auto* const all = reinterpret_cast<uint8_t*>(memory_.all());
  auto* const own = reinterpret_cast<uint8_t*>(memory_.own());
  MulticastProbe probe;
  probe.pattern = own + At(kPattern);
  probe.pattern_of_all = all + rank_ * MulticastProbe::kBytes;
  probe.numbers_of_all = all + At(kNumbers);
  probe.sums = own + At(kSums);
  return interpreter->Run(&probe);
}

Status CudaMulticast::Check() const {
  const Scope scope(device_);
  Words found(At(kPlaces) / sizeof(uint32_t));
  const Driver& driver = Driver::Loaded();
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemcpyDtoHAsync(found.data(), memory_.own(), found.size() * sizeof(uint32_t), device_.stream()));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamSynchronize(device_.stream()));
  for (size_t rank = 0; rank < ranks_; ++rank) {
    const Words pattern = PatternOf(rank);
    if (!std::equal(pattern.begin(), pattern.end(), found.begin() + static_cast<ptrdiff_t>(rank * kProbeWords)))
      return MakeStatus(Code::kUnhandledCudaError,
                        "what rank %zu has stored to all devices has not arrived on CUDA device %d of rank %zu", rank,
                        device_.ordinal(), rank_);
  }
  std::vector<float> sums(kProbeWords);
  std::memcpy(sums.data(), found.data() + At(kSums) / sizeof(uint32_t), MulticastProbe::kBytes);
  for (size_t i = 0; i < kProbeWords; ++i) {
    const auto expected = static_cast<float>((i + 1) * (ranks_ * (ranks_ + 1) / 2));
    if (sums[i] != expected)
      return MakeStatus(Code::kUnhandledCudaError,
                        "on CUDA device %d of rank %zu, the sum of all devices is %g instead of %g", device_.ordinal(),
                        rank_, static_cast<double>(sums[i]), static_cast<double>(expected));
  }
  return Status();
}

bool CudaMulticast::Folds(const Call& call) {
  const bool divides = call.scaling == Scaling::kAverage && !IsFloat(ScalarType(call.type));
  const bool scales_result = divides || call.scaling == Scaling::kResult;
  return !scales_result && kernels::cuda::SwitchFoldOf(call.type, call.combine) != kernels::cuda::SwitchFold::kNone;
}

kernels::cuda::MulticastArea CudaMulticast::area() const {
  return {reinterpret_cast<uint8_t*>(memory_.all()), reinterpret_cast<uint8_t*>(memory_.own()),
          memory_.bytes() / plan::kRotation};
}

}  // namespace axccl::exec
