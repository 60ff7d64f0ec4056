/* SPDX-License-Identifier: Apache-2.0 */
/* module.cpp - what Python sees: unisono.torch._C. */
#include "backend.hpp"
#include "errors.hpp"
#include "memory.hpp"
#include "position.hpp"

#include <torch/csrc/utils/pybind.h>
#include <unisono_watch.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace unisono {

static c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions &given, const std::string &description,
                                                const c10::intrusive_ptr<Backend> &parent)
{
    auto options = c10::make_intrusive<GroupOptions>(kName, std::chrono::duration_cast<Millis>(given.timeout));
    options->group_name = given.group_id;
    options->group_desc = description;
    options->global_ranks_in_group.assign(given.global_ranks_in_group.begin(), given.global_ranks_in_group.end());
    Family family{parent, {given.global_ranks_in_group.begin(), given.global_ranks_in_group.end()}};
    return c10::make_intrusive<Backend>(given.store, given.group_rank, given.group_size, options, parent ? family : Family());
}

} // namespace unisono

namespace unisono {

// What moved this group's bytes so far.
static std::map<std::string, uint64_t> counts(Backend &backend)
{
    uno_counts c;
    backend.count(&c);
    std::map<std::string, uint64_t> all = {{"small_operations", c.small_operations}, {"tiled_operations", c.tiled_operations},
                                           {"lent_bytes", c.lent_bytes}, {"slot_memory_bytes", c.slot_memory_bytes}};
    for (int i = 0; i < UNO_CARRIER_COUNT; i++)
        all[std::string(uno_carrier_name(static_cast<uno_carrier>(i))) + "_bytes"] = c.bytes[i];
    return all;
}

} // namespace unisono

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "The backend class of unisono.torch";
    m.attr("built_for") = UNISONO_BUILT_FOR;
    m.def("library_version", &uno_version);
    m.def("push_shared_allocator", &unisono::push_shared_allocator);
    m.def("pop_shared_allocator", &unisono::pop_shared_allocator);
    m.def("tell_positions", &unisono::tell_positions);
    m.def("program_failed", &unisono::program_failed);
    m.def("set_error_classes", &unisono::set_error_classes);
    py::module_::import("torch.distributed");
    using Made = c10::intrusive_ptr<c10d::Backend>;
    py::class_<unisono::Backend, c10d::Backend, c10::intrusive_ptr<unisono::Backend>>(m, "Backend")
        .def("monitored_barrier",
             [](unisono::Backend &self, std::chrono::milliseconds timeout, bool wait_all_ranks) {
                 c10d::BarrierOptions options;
                 options.timeout = timeout;
                 self.monitoredBarrier(options, wait_all_ranks);
             },
             py::arg("timeout") = c10d::kUnsetTimeout, py::arg("wait_all_ranks") = false, py::call_guard<py::gil_scoped_release>())
        // Series of torch before these names have no other.
        .def("abort", &unisono::Backend::abort, py::call_guard<py::gil_scoped_release>())
        .def("shutdown", &unisono::Backend::shutdown, py::call_guard<py::gil_scoped_release>())
        .def("counts", &unisono::counts, py::call_guard<py::gil_scoped_release>())
        .def("split",
             [](unisono::Backend &self, const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks) -> Made {
                 return self.split(store, ranks, nullptr);
             },
             py::arg("store"), py::arg("ranks"), py::call_guard<py::gil_scoped_release>())
        .def("shrink",
             [](unisono::Backend &self, const std::vector<int64_t> &exclude, int flags, const c10::intrusive_ptr<c10d::Backend::Options> &opts)
                 -> Made { return self.shrink(exclude, flags, c10::dynamic_intrusive_pointer_cast<unisono::GroupOptions>(opts)); },
             py::arg("ranks_to_exclude"), py::arg("shrink_flags") = 0, py::arg("opts") = py::none(), py::call_guard<py::gil_scoped_release>());
    m.def("create", &unisono::create, py::arg("options"), py::arg("description") = "", py::arg("parent") = c10::intrusive_ptr<unisono::Backend>(),
          py::call_guard<py::gil_scoped_release>());
    unisono::watch_signals();
}
