package contract_test

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/contract"
	"weir/internal/weir"
)

// Accept reads the ordering key and the version of a message. If the message breaks rules of its
// contract, the error lists each problem.
func ExampleSet_Accept() {
	set, err := contract.New([]contract.Definition{{
		Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"}, Version: "./@version",
		Fields: []contract.Field{{Path: "./title", Rule: "required,max=20"}},
	}}, contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	body := `<article path="/news/1" version="3"><title>Hello</title></article>`
	m, err := set.Accept(ctx, "application/xml", []byte(body))
	fmt.Println(m.Contract, m.Key, m.Version, err)

	_, err = set.Accept(ctx, "application/xml",
		[]byte(`<article path="/news/1"><title/></article>`))
	var refused *weir.Error
	if errors.As(err, &refused) {
		for _, p := range refused.Problems {
			fmt.Println(p.Path, p.Rule)
		}
	}
	// Output:
	// article /news/1 3 <nil>
	// ./@version required
	// ./title required
}
