#include "transports/ucx/library.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>

namespace axccl::ucx {
namespace {

constexpr int kSignals = 65;

// The application's signal handlers.
class Handlers {
 public:
  Handlers() {
    for (int signal = 1; signal < kSignals; ++signal)
      known_[static_cast<size_t>(signal)] = sigaction(signal, nullptr, &actions_[static_cast<size_t>(signal)]) == 0;
  }
  ~Handlers() {
    for (int signal = 1; signal < kSignals; ++signal)
      if (known_[static_cast<size_t>(signal)]) sigaction(signal, &actions_[static_cast<size_t>(signal)], nullptr);
  }

 private:
  std::array<struct sigaction, kSignals> actions_{};
  std::array<bool, kSignals> known_{};
};

Status Load(Library* library) {
  const Handlers handlers;
  void* const ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  void* const ucs = ucp == nullptr ? nullptr : dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL);
  if (ucs == nullptr)
    return MakeStatus(
        Code::kInvalidUsage,
        "ranks on several machines (or with different NCCL_HOSTID) meet over UCX, which is not there: %s; "
        "install UCX 1.13 or newer (Debian: libucx0)",
        dlerror());
  if (const char* const lacking = library->Find(ucp); lacking != nullptr)
    return MakeStatus(Code::kInvalidUsage, "UCX lacks %s: version 1.13 or newer is needed", lacking);
  library->ucs_status_string = reinterpret_cast<decltype(library->ucs_status_string)>(dlsym(ucs, "ucs_status_string"));
  if (library->ucs_status_string == nullptr) return MakeStatus(Code::kInvalidUsage, "UCX lacks ucs_status_string");
  return Status();
}

}  // namespace

Status Library::Error(ucs_status_t status, const char* what) const {
  return MakeStatus(Code::kSystemError, "UCX: %s: %s", what, ucs_status_string(status));
}

Result<const Library*> Library::Get() {
  static Library* const library = new Library;
  static const Status* const status = new Status(Load(library));
  if (!status->ok()) return *status;
  return library;
}

}  // namespace axccl::ucx
