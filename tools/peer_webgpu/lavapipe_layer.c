/* A Vulkan layer that lets Dawn (and so onnxruntime-webgpu) use the lavapipe of Mesa before 23.1.
 *
 * Dawn refuses an adapter without shaderSampledImageArrayDynamicIndexing and shaderStorageImageArrayDynamicIndexing.
 * Old lavapipe lacks both; compute shaders over buffers need neither. The layer reports them as present when asked
 * and takes them out again when the device is created, so that the driver never sees a feature it does not have.
 *
 * Needs vulkan/vk_layer.h (Debian: libvulkan-dev). One instance and one device at a time, which is what a benchmark's
 * worker makes; it is a tool for measuring, not for use.
 */
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static struct {
    VkInstance instance;
    PFN_vkGetInstanceProcAddr instance_proc;
    PFN_vkGetDeviceProcAddr device_proc;
    PFN_vkGetPhysicalDeviceFeatures features;
    PFN_vkGetPhysicalDeviceFeatures2 features2;
    PFN_vkCreateDevice create_device;
} next;

static void set_features(VkPhysicalDeviceFeatures *features, VkBool32 value) {
    features->shaderSampledImageArrayDynamicIndexing = value;
    features->shaderStorageImageArrayDynamicIndexing = value;
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures *features) {
    next.features(device, features);
    set_features(features, VK_TRUE);
}

static VKAPI_ATTR void VKAPI_CALL get_features2(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *features) {
    next.features2(device, features);
    set_features(&features->features, VK_TRUE);
}

/* The loader hands each layer its successor in a chain of structures; a layer takes its link and moves the head on. */
static const VkBaseInStructure *find(const void *chain, VkStructureType type) {
    const VkBaseInStructure *link = chain;
    while (link && link->sType != type) link = link->pNext;
    return link;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator, VkInstance *instance) {
    const void *chain = info->pNext;
    VkLayerInstanceCreateInfo *link;
    do {
        link = (VkLayerInstanceCreateInfo *)find(chain, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
        if (!link) return VK_ERROR_INITIALIZATION_FAILED;
        chain = link->pNext;
    } while (link->function != VK_LAYER_LINK_INFO);
    PFN_vkGetInstanceProcAddr proc = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)proc(NULL, "vkCreateInstance");
    VkResult result = create(info, allocator, instance);
    if (result != VK_SUCCESS) return result;
    next.instance = *instance;
    next.instance_proc = proc;
    next.features = (PFN_vkGetPhysicalDeviceFeatures)proc(*instance, "vkGetPhysicalDeviceFeatures");
    next.features2 = (PFN_vkGetPhysicalDeviceFeatures2)proc(*instance, "vkGetPhysicalDeviceFeatures2");
    if (!next.features2)
        next.features2 = (PFN_vkGetPhysicalDeviceFeatures2)proc(*instance, "vkGetPhysicalDeviceFeatures2KHR");
    next.create_device = (PFN_vkCreateDevice)proc(*instance, "vkCreateDevice");
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkDevice *device) {
    const void *chain = info->pNext;
    VkLayerDeviceCreateInfo *link;
    do {
        link = (VkLayerDeviceCreateInfo *)find(chain, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
        if (!link) return VK_ERROR_INITIALIZATION_FAILED;
        chain = link->pNext;
    } while (link->function != VK_LAYER_LINK_INFO);
    PFN_vkGetDeviceProcAddr proc = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;

    VkDeviceCreateInfo copy = *info;
    VkPhysicalDeviceFeatures plain, saved = {0};
    if (copy.pEnabledFeatures) {
        plain = *copy.pEnabledFeatures;
        set_features(&plain, VK_FALSE);
        copy.pEnabledFeatures = &plain;
    }
    VkPhysicalDeviceFeatures2 *chained =
        (VkPhysicalDeviceFeatures2 *)find(info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
    if (chained) {
        saved = chained->features;
        set_features(&chained->features, VK_FALSE);
    }
    VkResult result = next.create_device(physical, &copy, allocator, device);
    if (chained) chained->features = saved;
    if (result == VK_SUCCESS) next.device_proc = proc;
    return result;
}

__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
tang_layer_device_proc(VkDevice device, const char *name) {
    if (!strcmp(name, "vkGetDeviceProcAddr")) return (PFN_vkVoidFunction)tang_layer_device_proc;
    return next.device_proc ? next.device_proc(device, name) : NULL;
}

__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
tang_layer_instance_proc(VkInstance instance, const char *name) {
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } ours[] = {
        {"vkGetInstanceProcAddr", (PFN_vkVoidFunction)tang_layer_instance_proc},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)tang_layer_device_proc},
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
        {"vkGetPhysicalDeviceFeatures", (PFN_vkVoidFunction)get_features},
        {"vkGetPhysicalDeviceFeatures2", (PFN_vkVoidFunction)get_features2},
        {"vkGetPhysicalDeviceFeatures2KHR", (PFN_vkVoidFunction)get_features2},
    };
    for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
        if (!strcmp(name, ours[k].name)) return ours[k].function;
    return next.instance_proc ? next.instance_proc(instance, name) : NULL;
}
