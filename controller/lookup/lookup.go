// Package lookup reads single pods from the API server, for what the informers
// may not show yet.
package lookup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Pod is the pod of that name as the API server has it, whatever its UID; nil:
// there is none. Listing by name asks for no right that the informers do not need.
func Pod(ctx context.Context, pods corev1client.PodsGetter, namespace, name string) (*corev1.Pod, error) {
	list, err := pods.Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name { // whatever the server makes of the selector
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
