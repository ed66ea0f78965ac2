#include "transports/ucx/rail.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "src/base/log.h"
#include "transports/remote/wire.h"
#include "transports/ucx/devices.h"

namespace axccl::ucx {
namespace {

// Data on one machine uses the library's own shared memory (transports/shm).
constexpr const char* kNotOfNetworks = "^sm,self";
// TCP copies data anyway, and a fetch by the receiver costs a round trip. An adapter would write it in place.
constexpr const char* kNeverToBeFetched = "inf";
// What UCX sends over TCP in one piece, without the header. The receiver first assembles pieces in memory of its own.
constexpr size_t kPieceOfTcp = 56u << 10;

bool HasAdapters(const std::string& devices) { return devices.empty() || devices.find(':') != std::string::npos; }

}  // namespace

Result<std::unique_ptr<Rail>> Rail::Create(Worker* owner, const Library& ucx, const remote::RailOptions& options,
                                           const std::string& families) {
  std::unique_ptr<Rail> rail(new Rail(owner, ucx, options));
  AXCCL_RETURN_IF_ERROR(rail->Start(families));
  return rail;
}

bool Rail::greets() const { return !HasAdapters(options_.devices); }

PciDistance Rail::DistanceTo(const std::string& pci_address) {
  const auto [known, first] = distances_.try_emplace(pci_address, PciDistance::kSys);
  if (first) known->second = FarthestAdapter(options_.devices, pci_address, "");
  return known->second;
}

ucs_status_ptr_t Rail::CallFor(const transport::Reach::DevicePart& device, ucp_request_param_t* param,
                               const std::function<ucs_status_ptr_t()>& call) const {
  if (knows_devices_) {
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->memory_type = UCS_MEMORY_TYPE_CUDA;
  }
  ucs_status_ptr_t request = nullptr;
  device.Call([&] { request = call(); });
  return request;
}

Status Rail::Register(const transport::Reach::DevicePart& device, std::byte* memory, uint64_t bytes) const {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory;
  params.length = bytes;
  if (knows_devices_) {
    params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.memory_type = UCS_MEMORY_TYPE_CUDA;
  }
  ucs_status_t status = UCS_OK;
  device.Call([&] {
    ucp_mem_h handle = nullptr;
    status = ucx_.ucp_mem_map(context_, &params, &handle);
    if (status == UCS_OK) status = ucx_.ucp_mem_unmap(context_, handle);
  });
  return status == UCS_OK ? Status() : ucx_.Error(status, ("registering memory of a device with " + name()).c_str());
}

size_t Rail::most_bytes() const { return HasAdapters(options_.devices) ? ~size_t{0} : kPieceOfTcp; }

Status Rail::Start(const std::string& families) {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucx_.ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return ucx_.Error(status, "reading the settings of the environment (UCX_*)");
  Status status = Configure(families, config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (status.ok()) {
    const ucs_status_t made = ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    const bool blind = access("/sys/class/net", R_OK | X_OK) != 0;
    if (made != UCS_OK)
      status = ucx_.Error(
          made, blind ? "starting, with no /sys/class/net to find networks in (is /sys mounted?)" : "starting");
  }
  ucx_.ucp_config_release(config);
  AXCCL_RETURN_IF_ERROR(status);
  knows_devices_ = KnowsDevices();
  AXCCL_RETURN_IF_ERROR(CreateWorker());
  AXCCL_INFO(kNet, "UCX %s over %s: an address takes %zu bytes", ucx_.ucp_get_version_string(), name().c_str(),
             address_.size());
  return Status();
}

bool Rail::KnowsDevices() const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucx_.ucp_context_query(context_, &attributes) == UCS_OK &&
         (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

// UCX keeps memory registered. Before 1.18 it does not see all ways in which memory of devices is freed, and would take
// what is there later for it. With settings of the user, it may use other devices than these.
bool Rail::reaches_devices() const {
  unsigned major = 0, minor = 0, release = 0;
  ucx_.ucp_get_version(&major, &minor, &release);
  return knows_devices_ && HasAdapters(options_.devices) && std::tie(major, minor) >= std::tuple(1u, 18u) &&
         std::getenv("UCX_NET_DEVICES") == nullptr && std::getenv("UCX_TLS") == nullptr;
}

// Settings of the user in the environment stay.
Status Rail::Configure(const std::string& families, ucp_config_t* config) const {
  unsigned major = 0, minor = 0, release = 0;
  ucx_.ucp_get_version(&major, &minor, &release);
  const auto set = [&](const std::string& prefix, const std::string& name, const std::string& value) -> Status {
    if (std::getenv(("UCX_" + prefix + name).c_str()) != nullptr) return Status();
    // Before 1.17, a setting of a transport has only its last name when a program sets it.
    const bool last_name = major == 1 && minor < 17;
    const ucs_status_t status =
        ucx_.ucp_config_modify(config, ((last_name ? "" : prefix) + name).c_str(), value.c_str());
    return status == UCS_OK ? Status() : ucx_.Error(status, ("setting " + prefix + name + " to " + value).c_str());
  };
  AXCCL_RETURN_IF_ERROR(set("", "TLS", kNotOfNetworks));
  if (!options_.devices.empty()) AXCCL_RETURN_IF_ERROR(set("", "NET_DEVICES", options_.devices));
  if (!families.empty()) AXCCL_RETURN_IF_ERROR(set("TCP_", "AF_PRIO", families));
  // A connection that cannot be made must not delay the others.
  AXCCL_RETURN_IF_ERROR(set("TCP_", "CONN_NB", "y"));
  if (!HasAdapters(options_.devices)) {
    // Connections are greeted first (endpoint.h).
    AXCCL_RETURN_IF_ERROR(set("", "RESOLVE_REMOTE_EP_ID", "n"));
    return set("", "RNDV_THRESH", kNeverToBeFetched);
  }
  const auto ports = std::count(options_.devices.begin(), options_.devices.end(), ':');
  if (ports < 2) return Status();
  const std::string most = std::to_string(std::min<size_t>(static_cast<size_t>(ports), remote::kMostRails));
  for (const std::string name : {"MAX_RNDV_", "MAX_EAGER_"}) {
    // Each setting has two names.
    if (std::getenv(("UCX_" + name + "LANES").c_str()) == nullptr) AXCCL_RETURN_IF_ERROR(set("", name + "RAILS", most));
  }
  return Status();
}

Status Rail::CreateWorker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const ucs_status_t status = ucx_.ucp_worker_create(context_, &params, &worker_); status != UCS_OK)
    return ucx_.Error(status,
                      "creating a worker (no network device that works? NCCL_NET=Socket keeps to TCP; UCX_TLS and "
                      "UCX_NET_DEVICES restrict what is used)");
  ucp_worker_attr_t attributes{};
  attributes.field_mask =
      UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
  if (const ucs_status_t status = ucx_.ucp_worker_query(worker_, &attributes); status != UCS_OK)
    return ucx_.Error(status, "asking for the worker's address");
  const auto* const address = reinterpret_cast<const std::byte*>(attributes.address);
  address_.assign(address, address + attributes.address_length);
  ucx_.ucp_worker_release_address(worker_, attributes.address);
  if (attributes.max_am_header < remote::kMostHeaderBytes)
    return MakeStatus(Code::kSystemError, "UCX takes headers of %zu bytes, %zu are needed", attributes.max_am_header,
                      remote::kMostHeaderBytes);
  const ucs_status_t status = ucx_.ucp_worker_get_efd(worker_, &event_fd_);
  return status == UCS_OK ? Status() : ucx_.Error(status, "asking for the worker's descriptor");
}

Status Rail::Receive(unsigned id, ucp_am_recv_callback_t callback) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = id;
  handler.cb = callback;
  handler.arg = this;
  const ucs_status_t status = ucx_.ucp_worker_set_am_recv_handler(worker_, &handler);
  return status == UCS_OK ? Status() : ucx_.Error(status, "setting a handler");
}

}  // namespace axccl::ucx
