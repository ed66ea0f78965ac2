// The launches of module.h.
#include <algorithm>
#include <cstring>

#include "tools/softgpu/cuda/module.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

// Returns CUDA's error for the engine's report of a failed kernel.
CUresult ErrorOf(const std::string& text) {
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  if (has("assert")) return CUDA_ERROR_ASSERT;
  if (has("misaligned") || has("not aligned")) return CUDA_ERROR_MISALIGNED_ADDRESS;
  if (has("address") || has("out of bounds")) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return CUDA_ERROR_LAUNCH_FAILED;
}

// Where the blocks of a cooperative launch meet; device memory while it runs.
class GridWorkspace {
 public:
  explicit GridWorkspace(Context* context) {
    std::shared_ptr<DeviceMemory::Piece> piece = context->device().memory.Allocate(kPage);
    if (piece == nullptr) return;
    Range range;
    range.begin = address_ = piece->address();
    range.bytes = kPage;
    range.kind = RangeKind::kPool;
    range.device = context->device().ordinal;
    range.backing = std::move(piece);
    AddressSpace::Get().Insert(std::move(range));
  }
  ~GridWorkspace() {
    if (address_ != 0) AddressSpace::Get().Erase(address_, RangeKind::kPool);
  }
  GridWorkspace(const GridWorkspace&) = delete;
  GridWorkspace& operator=(const GridWorkspace&) = delete;
  uint64_t address() const { return address_; }

 private:
  uint64_t address_ = 0;
};

class KernelWork : public Work {
 public:
  KernelWork(FunctionPtr function, engine::LaunchConfig config, bool cooperative)
      : function_(std::move(function)), config_(std::move(config)), cooperative_(cooperative) {}

  Progress Advance() override {
    Context& context = *function_->module->context();
    if (context.error() != CUDA_SUCCESS) return Progress::kDone;
    if (execution_ == nullptr && !Start(&context)) return Progress::kDone;
    // Short enough that others run soon, long enough that switching costs little.
    constexpr uint64_t kSlice = 20000;
    switch (execution_->Run(kSlice)) {
      case engine::State::kRunning:
        return Progress::kMore;
      case engine::State::kWaiting:
        return Progress::kWaiting;
      case engine::State::kFailed:
        Fail(&context, ErrorOf(execution_->error()), execution_->error());
        return Progress::kDone;
      default:
        return Progress::kDone;
    }
  }

 private:
  bool Start(Context* context) {
    std::string error;
    if (cooperative_) {
      workspace_ = std::make_unique<GridWorkspace>(context);
      config_.grid_workspace = workspace_->address();
    }
    const engine::AddressMap& map = AddressSpace::Get().View(context->device().ordinal);
    execution_ = engine::Execution::Start(std::move(config_), Knobs().engine, &map, &error);
    if (execution_ == nullptr) Fail(context, CUDA_ERROR_LAUNCH_FAILED, error);
    return execution_ != nullptr;
  }

  // Prints the text, which CUDA's API has no room for.
  void Fail(Context* context, CUresult error, const std::string& text) {
    Report("device %d: kernel %s failed: %s", context->device().ordinal, function_->info().name.c_str(), text.c_str());
    context->Fail(error);
  }

  FunctionPtr function_;
  engine::LaunchConfig config_;
  const bool cooperative_;
  std::unique_ptr<GridWorkspace> workspace_;
  std::unique_ptr<engine::Execution> execution_;
};

int Attribute(CUdevice_attribute attribute, int device) {
  int value = 0;
  DeviceAttribute(attribute, device, &value);
  return value;
}

bool Within(const engine::Dim3& size, int device, CUdevice_attribute x, CUdevice_attribute y, CUdevice_attribute z) {
  const auto fits = [&](uint32_t extent, CUdevice_attribute limit) {
    return extent > 0 && extent <= static_cast<uint32_t>(Attribute(limit, device));
  };
  return fits(size.x, x) && fits(size.y, y) && fits(size.z, z);
}

}  // namespace

KernelOperation::KernelOperation(FunctionPtr function, const LaunchShape& shape, std::vector<std::byte> arguments)
    : function_(std::move(function)), shape_(shape), arguments_(std::move(arguments)) {
  for (const engine::Parameter& parameter : function_->info().parameters)
    argument_pointers_.push_back(arguments_.data() + parameter.offset);
}

void KernelOperation::Describe(CUDA_KERNEL_NODE_PARAMS* parameters) const {
  *parameters = {};
  parameters->func = reinterpret_cast<CUfunction>(function_.get());
  parameters->gridDimX = shape_.grid.x;
  parameters->gridDimY = shape_.grid.y;
  parameters->gridDimZ = shape_.grid.z;
  parameters->blockDimX = shape_.block.x;
  parameters->blockDimY = shape_.block.y;
  parameters->blockDimZ = shape_.block.z;
  parameters->sharedMemBytes = shape_.shared_bytes;
  parameters->kernelParams = const_cast<void**>(argument_pointers_.data());
}

std::unique_ptr<Work> KernelOperation::Begin() const {
  engine::LaunchConfig config;
  config.kernel = function_->kernel;
  config.grid = shape_.grid;
  config.block = shape_.block;
  config.dynamic_shared_bytes = shape_.shared_bytes;
  config.parameters = arguments_;
  return std::make_unique<KernelWork>(function_, std::move(config), shape_.cooperative);
}

CUresult CheckLaunch(const Function& function, const LaunchShape& shape) {
  const engine::KernelInfo& info = function.info();
  const int device = function.module->context()->device().ordinal;
  const bool sizes = Within(shape.grid, device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                            CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) &&
                     Within(shape.block, device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                            CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (!sizes || threads > 1024) {
    Explain("kernel %s: a grid of %u x %u x %u blocks of %u x %u x %u threads is not possible", info.name.c_str(),
            shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y, shape.block.z);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > info.max_threads) {
    Explain("kernel %s: %llu threads a block, its PTX allows %u", info.name.c_str(),
            static_cast<unsigned long long>(threads), info.max_threads);
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (shape.shared_bytes > static_cast<unsigned>(function.max_dynamic_shared.load())) {
    Explain("kernel %s: %u bytes of dynamic shared memory, %d are allowed (cuFuncSetAttribute raises that)",
            info.name.c_str(), shape.shared_bytes, function.max_dynamic_shared.load());
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!shape.cooperative) return CUDA_SUCCESS;
  const uint64_t blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  const uint64_t resident = uint64_t(Occupancy(function, static_cast<int>(threads), shape.shared_bytes)) *
                            static_cast<uint64_t>(Knobs().multiprocessors);
  if (blocks <= resident && blocks <= Knobs().engine.resident_blocks) return CUDA_SUCCESS;
  Explain(
      "kernel %s: %llu cooperative blocks, %llu fit on the device and %u run at a time (SOFTGPU_MULTIPROCESSORS, "
      "SOFTGPU_RESIDENT_BLOCKS)",
      info.name.c_str(), static_cast<unsigned long long>(blocks), static_cast<unsigned long long>(resident),
      Knobs().engine.resident_blocks);
  return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult PackArguments(const Function& function, void** arguments, void** extra, std::vector<std::byte>* packed) {
  const engine::KernelInfo& info = function.info();
  packed->assign(info.parameter_bytes, std::byte{0});
  if (arguments != nullptr) {
    for (size_t i = 0; i < info.parameters.size(); ++i) {
      const engine::Parameter& parameter = info.parameters[i];
      if (arguments[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(packed->data() + parameter.offset, arguments[i], parameter.bytes);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) return info.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(extra[1]);
  }
  if (buffer == nullptr && bytes > 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > 0) std::memcpy(packed->data(), buffer, std::min<size_t>(bytes, packed->size()));
  return CUDA_SUCCESS;
}

size_t ReservedSharedMemory(int device) {
  return static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device));
}

int Occupancy(const Function& function, int threads, size_t dynamic_shared) {
  const int device = function.module->context()->device().ordinal;
  if (threads <= 0 || static_cast<uint32_t>(threads) > function.info().max_threads) return 0;
  const int warps = (threads + 31) / 32;
  const int by_threads = Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device) / (warps * 32);
  const int by_blocks = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device);
  const size_t own = function.info().shared_bytes + dynamic_shared;
  const size_t shared = own == 0 ? 0 : own + ReservedSharedMemory(device);
  const int of_processor = Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
  const int by_shared = shared == 0 ? by_blocks : static_cast<int>(static_cast<size_t>(of_processor) / shared);
  return std::min({by_threads, by_blocks, by_shared});
}

}  // namespace softgpu::cuda
