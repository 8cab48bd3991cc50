package pool

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// port resolves the port, and from it the container whose restarts count.
func (r reader) port() {
	text, named := r.pod.Annotations[AnnotationPort]
	container, port := firstPort(r.pod)
	if named {
		container, port = portByText(r.pod, text)
	}
	switch {
	case port == 0 && named:
		r.problem("annotation %s is %s: set it to a port number or to the name of a container port in the pod template", AnnotationPort, quote(text))
	case port == 0:
		r.problem("no container declares a TCP port: add one, or annotation %s, to the pod template", AnnotationPort)
	}
	r.out.Port = port
	r.container(container)
}

// container copies what the status says of the named container.
func (r reader) container(name string) {
	for i := range r.pod.Status.ContainerStatuses {
		s := &r.pod.Status.ContainerStatuses[i]
		if s.Name != name {
			continue
		}
		r.out.Restarts = s.RestartCount
		if s.State.Running != nil {
			r.out.StartedAt = wallTime(s.State.Running.StartedAt)
		}
	}
}

// portByText returns the port that an annotation means and its container. A
// number needs no declaration; undeclared, it counts for the first container.
func portByText(p *corev1.Pod, text string) (container string, port uint16) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		number = 0 // out of range it would be the largest one
	}
	return findPort(p, uint16(number), func(c corev1.ContainerPort) bool {
		if err == nil {
			return uint64(c.ContainerPort) == number
		}
		return text != "" && c.Name == text
	})
}

func firstPort(p *corev1.Pod) (container string, port uint16) {
	return findPort(p, 0, func(corev1.ContainerPort) bool { return true })
}

// findPort returns the first valid TCP port that matches, or, where none does,
// the fallback with the first container.
func findPort(p *corev1.Pod, fallback uint16, match func(corev1.ContainerPort) bool) (string, uint16) {
	for i := range p.Spec.Containers {
		for _, c := range p.Spec.Containers[i].Ports {
			tcp := c.Protocol == "" || c.Protocol == corev1.ProtocolTCP
			if tcp && c.ContainerPort > 0 && c.ContainerPort < 1<<16 && match(c) {
				return p.Spec.Containers[i].Name, uint16(c.ContainerPort)
			}
		}
	}
	if len(p.Spec.Containers) > 0 {
		return p.Spec.Containers[0].Name, fallback
	}
	return "", fallback
}
