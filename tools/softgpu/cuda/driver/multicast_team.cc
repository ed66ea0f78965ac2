#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/driver/multicast.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

constexpr uint64_t kMagic = 0x7473616369746c75;
constexpr uint32_t kMostBindings = 1024;

// Memory that this process has bound, by key.
struct BoundMemory {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<MemoryObject>> by_key;
};

BoundMemory& TheBoundMemory() {
  static auto* const bound = new BoundMemory;
  return *bound;
}

bool AreGranular(std::initializer_list<uint64_t> numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](uint64_t number) { return number % kGranularity == 0; });
}

}  // namespace

struct Multicast::Binding {
  uint64_t number = 0;  // unique among those of the object; 0: none
  int32_t device = 0;
  uint64_t offset = 0, bytes = 0;
  uint64_t memory_offset = 0;
  ServerAddress server;  // of the process that has bound it
  uint64_t key = 0;      // of the memory's descriptor there

  bool Overlaps(int other, uint64_t begin, uint64_t end) const {
    return number != 0 && device == other && offset < end && begin < offset + bytes;
  }
};

struct Multicast::Shared {
  uint64_t magic;
  pthread_mutex_t mutex;
  uint64_t bytes;
  unsigned long long handle_types;
  uint32_t devices;     // of the team
  uint64_t joined;      // a bit for each
  uint64_t generation;  // grows with every change of the bindings
  Binding bindings[kMostBindings];

  Binding* begin() { return bindings; }
  Binding* end() { return bindings + kMostBindings; }
};

// The mutex of all processes, which a process may hold when it dies.
class Multicast::Lock {
 public:
  explicit Lock(Shared* shared) : mutex_(&shared->mutex) {
    if (pthread_mutex_lock(mutex_) == EOWNERDEAD) pthread_mutex_consistent(mutex_);
  }
  ~Lock() { pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* const mutex_;
};

std::shared_ptr<Multicast> Multicast::Open(int descriptor, const CUmulticastObjectProp* properties) {
  static_assert(sizeof(Shared) <= kFileBytes);
  std::unique_ptr<Mapping> pages = Mapping::Map(kFileBytes, descriptor, 0);
  if (pages == nullptr) return nullptr;
  std::shared_ptr<Multicast> made(new Multicast(std::move(pages)));
  Shared& shared = made->shared();
  if (properties == nullptr) return shared.magic == kMagic ? made : nullptr;
  // A fresh file is all zeros.
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared.mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  shared.bytes = properties->size;
  shared.handle_types = properties->handleTypes;
  shared.devices = properties->numDevices;
  shared.magic = kMagic;
  return made;
}

Multicast::~Multicast() {
  const Lock lock(&shared());
  for (Binding& binding : shared()) {
    if (bound_.count(binding.number) == 0) continue;
    binding = {};
    ++shared().generation;
  }
}

size_t Multicast::bytes() const { return shared().bytes; }
unsigned long long Multicast::handle_types() const { return shared().handle_types; }

CUresult Multicast::Join(int device) {
  const Lock lock(&shared());
  const uint64_t bit = uint64_t{1} << device;
  const auto members = static_cast<uint32_t>(__builtin_popcountll(shared().joined));
  if ((shared().joined & bit) != 0 || members == shared().devices) {
    Explain("device %d has joined the multicast object already, or all %u devices have", device, shared().devices);
    return CUDA_ERROR_INVALID_VALUE;
  }
  shared().joined |= bit;
  return CUDA_SUCCESS;
}

void Multicast::AwaitTeam() const {
  const auto complete = [this] {
    const Lock lock(&shared());
    return static_cast<uint32_t>(__builtin_popcountll(shared().joined)) == shared().devices;
  };
  for (int looks = 0; !complete(); ++looks) {
    if (looks == 10000) Report("a call has waited for 10 s for all devices of a multicast object to be added");
    const timespec pause = {0, 1000000};
    nanosleep(&pause, nullptr);
  }
}

bool Multicast::Has(int device) const {
  const Lock lock(&shared());
  return (shared().joined >> device & 1) != 0;
}

CUresult Multicast::Bind(uint64_t offset, const MemoryObjectPtr& memory, uint64_t memory_offset, uint64_t bytes) {
  const int device = memory->properties.location.id;
  if (bytes == 0 || !AreGranular({offset, memory_offset, bytes})) return CUDA_ERROR_INVALID_VALUE;
  if (memory_offset + bytes > memory->bytes || offset + bytes > this->bytes()) return CUDA_ERROR_INVALID_VALUE;
  if (memory->properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !Has(device)) return CUDA_ERROR_INVALID_VALUE;
  if (handle_types() != 0 && memory->properties.requestedHandleTypes == 0) {
    Explain("memory that cannot be shared is bound to a multicast object that can");
    return CUDA_ERROR_INVALID_VALUE;
  }
  Binding made = {0, device, offset, bytes, memory_offset, {}, AddressSpace::Get().NextId()};
  if (!ServeOwnDescriptors(&made.server)) return CUDA_ERROR_OPERATING_SYSTEM;
  const std::lock_guard process(mutex_);
  const Lock lock(&shared());
  Binding* free = nullptr;
  for (Binding& binding : shared()) {
    if (binding.Overlaps(device, offset, offset + bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (binding.number == 0 && free == nullptr) free = &binding;
  }
  if (free == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made.number = ++shared().generation;
  *free = made;
  bound_[made.number] = memory;
  const std::lock_guard known(TheBoundMemory().mutex);
  std::erase_if(TheBoundMemory().by_key, [](const auto& memory) { return memory.second.expired(); });
  TheBoundMemory().by_key[made.key] = memory;
  return CUDA_SUCCESS;
}

CUresult Multicast::Unbind(int device, uint64_t offset, uint64_t bytes) {
  const std::lock_guard process(mutex_);
  const Lock lock(&shared());
  // CUDA leaves open what becomes of a part of a binding, or of two together: an error here.
  const auto found = std::find_if(shared().begin(), shared().end(), [&](const Binding& binding) {
    return binding.number != 0 && binding.device == device && binding.offset == offset && binding.bytes == bytes;
  });
  if (found == shared().end()) return CUDA_ERROR_INVALID_VALUE;
  bound_.erase(found->number);
  *found = {};
  ++shared().generation;
  return CUDA_SUCCESS;
}

void Multicast::ForgetIfStale() {
  if (generation_ == shared().generation) return;
  generation_ = shared().generation;
  stretches_.clear();
  std::erase_if(mappings_, [this](const auto& mapping) {
    return std::none_of(shared().begin(), shared().end(),
                        [&](const Binding& binding) { return binding.number == mapping.first.first; });
  });
}

std::shared_ptr<Mapping> Multicast::MappingOf(const Binding& binding, bool lost) {
  std::shared_ptr<Mapping>& mapping = mappings_[{binding.number, lost}];
  if (mapping != nullptr) return mapping;
  if (lost) return mapping = Mapping::Map(binding.bytes, -1, 0);
  const int descriptor = FetchDescriptor(binding.server, binding.key);
  if (descriptor < 0) return nullptr;
  mapping = Mapping::Map(binding.bytes, descriptor, binding.memory_offset);
  close(descriptor);
  return mapping;
}

bool Multicast::MakeStretch(int device, uint64_t offset, Stretch* stretch) {
  const auto mappings = std::make_shared<Mappings>();
  stretch->begin = 0;
  stretch->end = shared().bytes;
  std::vector<const Binding*> behind;
  // The order of a reduction is not defined: each device begins with its own memory, so that ranks that reduce the same
  // numbers get different bits.
  for (int i = 0; i < kMaxDevices; ++i) {
    const int member = (device + i) % kMaxDevices;
    if ((shared().joined >> member & 1) == 0) continue;
    const auto found = std::find_if(shared().begin(), shared().end(), [&](const Binding& binding) {
      return binding.Overlaps(member, offset, offset + 1);
    });
    if (found == shared().end()) return false;
    // Simulates a broken path.
    const bool corrupt = Knobs().corrupt_peer || Knobs().corrupt_multicast;
    mappings->push_back(MappingOf(*found, corrupt && member != device));
    if (mappings->back() == nullptr) return false;
    behind.push_back(found);
    stretch->begin = std::max(stretch->begin, found->offset);
    stretch->end = std::min(stretch->end, found->offset + found->bytes);
  }
  for (size_t i = 0; i < behind.size(); ++i)
    stretch->copies.push_back((*mappings)[i]->address() + (stretch->begin - behind[i]->offset));
  stretch->backing = mappings;
  return true;
}

bool Multicast::Resolve(int device, uint64_t offset, engine::MulticastWindow* window) {
  const std::lock_guard process(mutex_);
  const Lock lock(&shared());
  ForgetIfStale();
  std::vector<Stretch>& known = stretches_[device];
  auto found = std::find_if(known.begin(), known.end(),
                            [&](const Stretch& stretch) { return stretch.begin <= offset && offset < stretch.end; });
  if (found == known.end()) {
    Stretch made;
    if (!MakeStretch(device, offset, &made)) return false;
    found = known.insert(known.end(), std::move(made));
  }
  *window = {found->begin, found->end, found->copies, found->backing};
  return true;
}

int DescriptorOfBound(uint64_t key) {
  BoundMemory& bound = TheBoundMemory();
  const std::lock_guard lock(bound.mutex);
  const auto found = bound.by_key.find(key);
  const MemoryObjectPtr memory = found == bound.by_key.end() ? nullptr : found->second.lock();
  return memory == nullptr ? -1 : memory->descriptor;
}

}  // namespace softgpu::cuda
