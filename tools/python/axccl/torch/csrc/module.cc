#include <pybind11/chrono.h>
#include <torch/extension.h>

#include "allocator.h"
#include "backend.h"

namespace py = pybind11;

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using axccl::torch::AxcclBackend;
  m.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
         const std::string& name) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<AxcclBackend>(store, rank, size, timeout, name);
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
      py::call_guard<py::gil_scoped_release>());
  m.def("use_allocator", &axccl::torch::UseAllocator, py::arg("least_bytes"));
  m.def("stop_using_allocator", &axccl::torch::StopUsingAllocator);
}
