// Reads the machine from hwloc.
#include <dlfcn.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "src/base/dynamic_functions.h"
#include "src/topo/discover.h"

namespace axccl::topo {
namespace {

// clang-format off
#define AXCCL_HWLOC_FUNCTIONS(X)                                                                                      \
  X(hwloc_bitmap_next) X(hwloc_bitmap_weight) X(hwloc_get_api_version) X(hwloc_get_nbobjs_by_depth)                   \
  X(hwloc_get_obj_by_depth) X(hwloc_get_type_depth) X(hwloc_topology_destroy) X(hwloc_topology_init)                  \
  X(hwloc_topology_is_thissystem) X(hwloc_topology_load) X(hwloc_topology_set_components)                             \
  X(hwloc_topology_set_io_types_filter)
// clang-format on

struct Library {
  AXCCL_DYNAMIC_FUNCTIONS(AXCCL_HWLOC_FUNCTIONS)
};

Status Load(Library* library) {
  void* const handle = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return MakeStatus(Code::kInvalidUsage, "hwloc 2 is not there: %s (Debian: libhwloc15)", dlerror());
  if (const char* const lacking = library->Find(handle); lacking != nullptr)
    return MakeStatus(Code::kInvalidUsage, "hwloc lacks %s: version 2.1 or newer is needed", lacking);
  const unsigned version = library->hwloc_get_api_version();
  if (version >> 16 != HWLOC_API_VERSION >> 16)
    return MakeStatus(Code::kInvalidUsage, "hwloc's interface has version 0x%x, this library was built for 0x%x",
                      version, static_cast<unsigned>(HWLOC_API_VERSION));
  return Status();
}

Result<const Library*> GetLibrary() {
  static Library* const library = new Library;
  static const Status* const status = new Status(Load(library));
  if (!status->ok()) return *status;
  return library;
}

// The nearest ancestor of `object` that has this type, or null.
hwloc_obj_t Around(hwloc_obj_t object, hwloc_obj_type_t type) {
  while (object != nullptr && object->type != type) object = object->parent;
  return object;
}

uint64_t CacheBytes(hwloc_obj_t core, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = Around(core, type);
  return cache == nullptr || cache->attr == nullptr ? 0 : cache->attr->cache.size;
}

class Survey {
 public:
  Survey(const Library& hwloc, hwloc_topology_t topology) : hwloc_(hwloc), topology_(topology) {}

  Machine Run() {
    AddNodes();
    // Some virtual machines report processors only.
    const int cores = hwloc_.hwloc_get_type_depth(topology_, HWLOC_OBJ_CORE);
    ForAll(cores >= 0 ? cores : hwloc_.hwloc_get_type_depth(topology_, HWLOC_OBJ_PU),
           [this](hwloc_obj_t core) { AddCore(core); });
    ForAll(HWLOC_TYPE_DEPTH_OS_DEVICE, [this](hwloc_obj_t device) { AddNic(device); });
    ForAll(HWLOC_TYPE_DEPTH_PCI_DEVICE, [this](hwloc_obj_t device) { AddGpu(device); });
    std::sort(machine_.nics.begin(), machine_.nics.end(), [](const Nic& a, const Nic& b) { return a.name < b.name; });
    std::sort(machine_.gpus.begin(), machine_.gpus.end(),
              [](const Gpu& a, const Gpu& b) { return a.address < b.address; });
    if (hwloc_.hwloc_topology_is_thissystem(topology_) != 0) AddWhatTheKernelKnows();
    return std::move(machine_);
  }

 private:
  template <class Fn>
  void ForAll(int depth, Fn fn) const {
    const auto count = static_cast<unsigned>(hwloc_.hwloc_get_nbobjs_by_depth(topology_, depth));
    for (unsigned i = 0; i < count; ++i) fn(hwloc_.hwloc_get_obj_by_depth(topology_, depth, i));
  }

  void AddNodes() {
    ForAll(HWLOC_TYPE_DEPTH_NUMANODE, [this](hwloc_obj_t node) {
      machine_.nodes.push_back({static_cast<int>(node->os_index), node->attr->numanode.local_memory});
    });
    std::sort(machine_.nodes.begin(), machine_.nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
  }

  // Cores come in the order of the tree, so the cores of a package, and of a cache, are consecutive.
  void AddCore(hwloc_obj_t object) {
    const hwloc_obj_t package = Around(object, HWLOC_OBJ_PACKAGE), cache = Around(object, HWLOC_OBJ_L3CACHE);
    const int node = hwloc_.hwloc_bitmap_next(object->nodeset, -1);
    if (machine_.packages.empty() || package != package_) {
      machine_.packages.emplace_back();
      const char* const model = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
      if (machine_.processor.empty() && model != nullptr) machine_.processor = PrintableName(model);
    }
    std::vector<Group>& groups = machine_.packages.back().groups;
    if (groups.empty() || cache != cache_ || node != groups.back().node)
      groups.push_back(Group{node, CacheBytes(object, HWLOC_OBJ_L3CACHE), {}});
    package_ = package;
    cache_ = cache;
    Core core{CacheBytes(object, HWLOC_OBJ_L1CACHE), CacheBytes(object, HWLOC_OBJ_L2CACHE), {}};
    for (int p = hwloc_.hwloc_bitmap_next(object->cpuset, -1); p >= 0; p = hwloc_.hwloc_bitmap_next(object->cpuset, p))
      core.processors.push_back(p);
    groups.back().cores.push_back(std::move(core));
  }

  int NodeOf(hwloc_obj_t device) const {
    while (device != nullptr && device->nodeset == nullptr) device = device->parent;
    if (device == nullptr || hwloc_.hwloc_bitmap_weight(device->nodeset) != 1) return kNowhere;
    return hwloc_.hwloc_bitmap_next(device->nodeset, -1);
  }

  void AddNic(hwloc_obj_t device) {
    const hwloc_obj_osdev_type_t type = device->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) return;
    const NicKind kind = type == HWLOC_OBJ_OSDEV_NETWORK ? NicKind::kEthernet : NicKind::kInfiniband;
    machine_.nics.push_back({PrintableName(device->name), kind, 0, NodeOf(device)});
  }

  void AddGpu(hwloc_obj_t device) {
    const auto& pci = device->attr->pcidev;
    if (!IsGpu(pci.class_id, pci.vendor_id)) return;
    char address[32];
    std::snprintf(address, sizeof(address), "%04x:%02x:%02x.%01x", static_cast<unsigned>(pci.domain), pci.bus, pci.dev,
                  pci.func);
    machine_.gpus.push_back({address, NodeOf(device)});
  }

  // hwloc shows only PCI NICs, and not their speed.
  void AddWhatTheKernelKnows() {
    std::vector<Nic> nics = KernelNics();
    for (Nic& nic : nics) {
      const auto shown =
          std::find_if(machine_.nics.begin(), machine_.nics.end(), [&](const Nic& n) { return n.name == nic.name; });
      if (shown != machine_.nics.end() && nic.node == kNowhere) nic.node = shown->node;
    }
    machine_.nics = std::move(nics);
  }

  const Library& hwloc_;
  const hwloc_topology_t topology_;
  Machine machine_;
  hwloc_obj_t package_ = nullptr, cache_ = nullptr;  // of the last core
};

}  // namespace

Result<Machine> DiscoverByHwloc() {
  AXCCL_ASSIGN_OR_RETURN(const Library* const hwloc, GetLibrary());
  hwloc_topology_t topology = nullptr;
  if (hwloc->hwloc_topology_init(&topology) != 0) return MakeStatus(Code::kSystemError, "hwloc_topology_init failed");
  const std::unique_ptr<hwloc_topology, decltype(hwloc->hwloc_topology_destroy)> guard(topology,
                                                                                       hwloc->hwloc_topology_destroy);
  // These components would start drivers and display servers for facts that PCI reports, too.
  for (const char* component : {"cuda", "gl", "levelzero", "nvml", "opencl", "rsmi"})
    (void)hwloc->hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  (void)hwloc->hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc->hwloc_topology_load(topology) != 0)
    return MakeStatus(Code::kSystemError, "hwloc_topology_load failed: are HWLOC_XMLFILE and HWLOC_SYNTHETIC valid?");
  return Survey(*hwloc, topology).Run();
}

}  // namespace axccl::topo
